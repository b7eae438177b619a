// Replaces unrolled loops by copies of their bodies.
#pragma once

#include "compiler/ir/ir.h"

namespace heddle::pass {

// Stores one unrolled loop may expand to. Register tiles need some hundreds; beyond this the time
// LLVM takes and the instruction cache cost more than unrolling gains.
inline constexpr int64_t kMaxUnrolledStores = 1024;

// Before: no blocks. After: no loop of kind `unrolled`: it is a sequence of copies with the
// variable substituted, or, where the copies would hold more than kMaxUnrolledStores stores, a
// serial loop.
ir::Program Unroll(const ir::Program& program);

}  // namespace heddle::pass
