// Gives each thread its own part of local buffers that are allocated outside of thread loops.
// Private to this folder.
#pragma once

#include "absl/status/statusor.h"
#include "compiler/ir/ir.h"

namespace heddle::codegen {

// Before: one launch, which may allocate local buffers outside of thread loops. After: each such
// buffer is the part that one thread uses, and its indices do not depend on the thread: acc[(t //
// 16) * 4 + i] becomes acc[i]. The result has this meaning on a GPU only, not as plain loops.
// Unimplemented: the parts of the threads differ in size, do not lie at equal distances, or
// overlap.
absl::StatusOr<ir::Stmt> SpreadLocals(const ir::Stmt& launch);

}  // namespace heddle::codegen
