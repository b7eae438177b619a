// Where buffers live, and which loops may run their iterations at once. Internal to this folder.
#pragma once

#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compiler/ir/ir.h"

namespace heddle::schedule {

// Allocations that were taken out of a statement.
struct Allocations {
  std::vector<ir::BufferRef> buffers;  // in program order
  // What was rebuilt without them -> itself and what it was, allocations around it included.
  std::unordered_map<const ir::StmtNode*, std::pair<ir::Stmt, ir::Stmt>> originals;
};

// The statement without its Alloc nodes, which are added to `allocs`.
ir::Stmt StripAllocs(const ir::Stmt& s, Allocations* allocs);

// Wraps the innermost statement that holds every access of a buffer in its allocation (the whole
// body if one block alone uses it). Buffers nobody uses are dropped. What comes out as it was
// before is the same node again.
ir::Stmt PlaceAllocs(const ir::Stmt& s, const Allocations& allocs);

// FailedPrecondition unless the iterations of the loop are independent: it feeds no reduce
// iterator, iterations write different elements of the buffers that outlive one, and (unless it is
// vectorized) share no `local` buffer; GPU threads
// may where each element is touched by one of them, which the interpreter checks.
absl::Status CheckIndependent(const ir::Stmt& loop, ir::LoopKind kind);

// CheckIndependent for every parallel, vectorized and GPU loop that is no node of `before`, and
// their nesting: nothing parallel or vectorized inside a vectorized loop, nothing parallel inside a
// parallel one. What is a node of `before` was found independent when its kind was set or its
// blocks moved; since then steps that do not ask again (split and fuse inside of it, reorder of
// serial loops) may have made it anew. That leaves its iterations what they were, also where
// CheckIndependent, which reckons with no guards, could not tell any more.
absl::Status CheckConcurrency(const ir::Stmt& root, const ir::Stmt& before);
// The same where all that changed is the kind of one loop: on kinds of other loops independence
// does not depend.
absl::Status CheckKind(const ir::Stmt& root, const ir::Stmt& changed);

// For primitives that move blocks: places the allocations of `body` and checks its concurrent loops
// again.
absl::StatusOr<ir::Program> Finish(const ir::Program& p, ir::Stmt body, const Allocations& allocs);

}  // namespace heddle::schedule
