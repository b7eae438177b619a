// Local buffers that stand around thread loops, made into memory of each thread. Private to this
// folder.
#pragma once

#include "absl/status/statusor.h"
#include "compiler/ir/ir.h"

namespace heddle::codegen {

// Before: one launch; a local buffer outside of thread loops is spread over the threads. After: the
// same statement where such a buffer is what one thread has of it, and its indices say nothing of
// the thread any more: acc[(t // 16) * 4 + i] becomes acc[i]. Only a GPU runs that; as plain loops
// it means something else. Unimplemented where threads share a buffer in another way than in
// equal parts at equal distances that do not overlap, and where several access one element: each
// would have its own.
absl::StatusOr<ir::Stmt> SpreadLocals(const ir::Stmt& launch);

}  // namespace heddle::codegen
