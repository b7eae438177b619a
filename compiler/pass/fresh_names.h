// Makes names that a program does not use yet, and copies of statements under such names. Every
// name of a program is unique, so a pass that copies code needs new ones.
#pragma once

#include <string>
#include <unordered_map>
#include <unordered_set>

#include "compiler/ir/ir.h"

namespace heddle::pass {

class FreshNames {
 public:
  explicit FreshNames(const ir::Program& program);

  // `base`, or `base` with a suffix such as ".c0". Never returns the same name twice.
  std::string Make(const std::string& base);

  // A copy of `stmt`, which contains no blocks, with new loop variables and allocations.
  ir::Stmt Clone(const ir::Stmt& stmt);

 private:
  std::unordered_set<std::string> used_;
  std::unordered_map<std::string, int> next_suffix_;
};

}  // namespace heddle::pass
