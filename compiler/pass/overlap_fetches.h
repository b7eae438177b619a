// Fetches what a GPU block reads next while it computes.
#pragma once

#include "compiler/ir/ir.h"

namespace heddle::pass {

// Both halves of all shared memory of a launch together take at most this much; more would leave
// room for few blocks on a multiprocessor, which hide waiting as well.
inline constexpr int64_t kMaxDoubledBytes = 48 << 10;
// Of launches with tensor cores, whose threads have so many registers that there are few blocks
// anyway; every architecture that has them allows so much.
inline constexpr int64_t kMaxDoubledTensorBytes = 96 << 10;

// Before: no blocks, no barriers. After: the same, but where each iteration of a loop first fills
// shared memory of its own from buffers that the launch does not write, and then uses it, the
// memory has two halves: while an iteration uses one, the next iteration's data is fetched into the
// other. A back end that copies asynchronously then has a whole iteration's time for it. With
// tensor cores, whose iterations are short, there are three parts, if they fit, and two iterations'
// time.
ir::Program OverlapFetches(const ir::Program& program);

}  // namespace heddle::pass
