// Replaces unrolled loops by copies of their bodies.
#pragma once

#include "compiler/ir/ir.h"

namespace heddle::pass {

// Stores that one unrolled loop may expand to. Register tiles need some hundreds. Beyond this
// limit, LLVM's time and the instruction cache cost more than unrolling gains.
inline constexpr int64_t kMaxUnrolledStores = 1024;

// Before: no blocks. After: no loop of kind `unrolled`. It has become a sequence of copies with the
// variable substituted, or a serial loop if the copies had more than kMaxUnrolledStores stores.
ir::Program Unroll(const ir::Program& program);

}  // namespace heddle::pass
