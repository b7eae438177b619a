// A loop nest over the elements that a block has written, to run after the block. Internal to this
// folder.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/ir/ir.h"
#include "compiler/schedule/tree.h"

namespace heddle::schedule {

struct CopyNest {
  // Depth, in the block's path, of the nest that the copy comes after.
  size_t top;
  std::vector<FreshLoop> loops;    // "<name><infix>.<k>"
  NewIters iters;                  // "<name>.v<k>"
  std::vector<ir::Expr> indices;   // of the block's buffer, in the new iterators
  ir::Expr where;                  // null if none
  std::vector<std::string> names;  // of the loops and iterators
};

// The block's nest is the largest chain of loops around it with no sequence between. The new loops
// repeat the spatial ones of that nest. FailedPrecondition if a reduce loop of the block lies
// outside its nest. `path` is free of allocations.
absl::StatusOr<CopyNest> MakeCopyNest(const Path& path, const std::string& name,
                                      const std::string& infix);

}  // namespace heddle::schedule
