// Places allocations, and checks which loops may run their iterations at the same time. Primitives
// need both after they have moved blocks. Internal to this folder.
#pragma once

#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compiler/ir/ir.h"

namespace heddle::schedule {

// Allocations taken out of a statement.
struct Allocations {
  std::vector<ir::BufferRef> buffers;  // in program order
  // For each rebuilt statement: itself, and the original with the allocations around it.
  std::unordered_map<const ir::StmtNode*, std::pair<ir::Stmt, ir::Stmt>> originals;
};

// The statement without its Alloc nodes, which are added to `allocs`.
ir::Stmt StripAllocs(const ir::Stmt& s, Allocations* allocs);

// Wraps the innermost statement that holds every access of a buffer in its allocation (the whole
// body if one block alone uses it). Buffers that nobody uses are dropped. A statement that comes
// out as it was before is the same node again.
ir::Stmt PlaceAllocs(const ir::Stmt& s, const Allocations& allocs);

// FailedPrecondition unless the iterations of the loop are independent: it feeds no reduce
// iterator, iterations write different elements of the buffers that outlive an iteration, and
// (unless it is vectorized) they share no `local` buffer. GPU threads may share one if each element
// is touched by only one of them, which the interpreter checks.
absl::Status CheckIndependent(const ir::Stmt& loop, ir::LoopKind kind);

// CheckIndependent for every parallel, vectorized and GPU loop that is no node of `before`, and a
// check of their nesting: nothing parallel or vectorized inside a vectorized loop, nothing parallel
// inside a parallel one.
//
// Nodes of `before` were found independent when their kind was set or their blocks moved. Split,
// fuse and reorder of serial loops inside of them rebuild them without a new check. Their
// iterations remain independent, even if CheckIndependent, which ignores guards, can no longer
// tell.
absl::Status CheckConcurrency(const ir::Stmt& root, const ir::Stmt& before);
// The same where only the kind of one loop changed: independence does not depend on the kinds of
// other loops.
absl::Status CheckKind(const ir::Stmt& root, const ir::Stmt& changed);

// The end of a primitive that moves blocks: places the allocations of `body` and checks its
// concurrent loops again.
absl::StatusOr<ir::Program> Finish(const ir::Program& p, ir::Stmt body, const Allocations& allocs);

}  // namespace heddle::schedule
