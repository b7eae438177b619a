// A loop nest that visits, once a block is through with them, the elements the block has written.
// Internal to this folder.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/ir/ir.h"
#include "compiler/schedule/tree.h"

namespace heddle::schedule {

struct CopyNest {
  size_t top;  // depth in the block's path of the nest after which this one belongs
  std::vector<FreshLoop> loops;    // "<name><infix>.<k>"
  NewIters iters;                  // "<name>.v<k>"
  std::vector<ir::Expr> indices;   // of the block's buffer, in the new iterators
  ir::Expr where;                  // null if none
  std::vector<std::string> names;  // of the loops and iterators
};

// `path` is free of allocations. The nest the block is alone in is the largest chain of loops
// around it with no sequence between. If no loop is outside that nest, the new loops go over the
// buffer's dimensions in order; else they repeat the block's spatial loops. FailedPrecondition if a
// reduce loop of the block lies outside its nest.
absl::StatusOr<CopyNest> MakeCopyNest(const Path& path, const std::string& name,
                                      const std::string& infix);

}  // namespace heddle::schedule
