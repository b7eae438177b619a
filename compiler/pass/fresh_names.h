// Names that a program does not use yet, and copies of statements under such names: what a pass
// that duplicates code needs, because every name of a program is unique.
#pragma once

#include <string>
#include <unordered_map>
#include <unordered_set>

#include "compiler/ir/ir.h"

namespace heddle::pass {

class FreshNames {
 public:
  explicit FreshNames(const ir::Program& program);

  // `base` itself or `base` with a numeric suffix; never the same name twice.
  std::string Make(const std::string& base);

  // A copy of a block-free `stmt` whose loop variables and allocations are new ones.
  ir::Stmt Clone(const ir::Stmt& stmt);

 private:
  std::unordered_set<std::string> used_;
  std::unordered_map<std::string, int> next_suffix_;
};

}  // namespace heddle::pass
