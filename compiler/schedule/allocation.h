// Where buffers live, and which loops may run their iterations at once. Internal to this folder.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compiler/ir/ir.h"

namespace heddle::schedule {

// The statement without its Alloc nodes, whose buffers are appended to `buffers` in program order.
ir::Stmt StripAllocs(const ir::Stmt& s, std::vector<ir::BufferRef>* buffers);

// Wraps the innermost statement that holds every access of a buffer in its allocation (the whole
// body if one block alone uses it). Buffers nobody uses are dropped.
ir::Stmt PlaceAllocs(const ir::Stmt& s, const std::vector<ir::BufferRef>& buffers);

// FailedPrecondition unless the iterations of the loop are independent: it feeds no reduce
// iterator, iterations write different elements of the buffers that outlive one, and (unless it is
// vectorized) share no `local` buffer; GPU threads
// may where each element is touched by one of them, which the interpreter checks.
absl::Status CheckIndependent(const ir::Stmt& loop, ir::LoopKind kind);

// CheckIndependent for every parallel, vectorized and GPU loop, and their nesting: nothing parallel
// or vectorized inside a vectorized loop, nothing parallel inside a parallel one.
absl::Status CheckConcurrency(const ir::Stmt& root);

// For primitives that move blocks: places the allocations of `body` and checks its concurrent loops
// again.
absl::StatusOr<ir::Program> Finish(const ir::Program& p, ir::Stmt body,
                                   const std::vector<ir::BufferRef>& buffers);

}  // namespace heddle::schedule
