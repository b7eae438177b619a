// Splits loops where their guards change from false to true or back.
#pragma once

#include "compiler/ir/ir.h"

namespace heddle::pass {

// Stores that partitioning may add to a program, counted after unrolling. Two copies of a large
// register tile fit. More copies cost more in compile time and instruction cache than the guards
// do.
inline constexpr int64_t kMaxPartitionedStores = 1024;

// Before: no blocks. After: no blocks. Suppose that a condition (a conjunct of an `if` or of a
// select) is true in iterations [lo, hi) of a serial loop for all values of the other variables.
// The loop has become up to three loops, over [0, lo), [lo, hi) and [hi, extent). A parallel loop
// stays one loop. If a condition is about a loop that was fused into it (a quotient or remainder of
// its variable), its body stands once for each of these parts, under a guard of its own. Conditions
// that a part decides are gone, so the interior of a guarded or padded loop runs without guards.
ir::Program PartitionLoops(const ir::Program& program);

}  // namespace heddle::pass
