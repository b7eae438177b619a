// Fetches the data of the next iteration of a GPU block while the block computes.
#pragma once

#include "compiler/ir/ir.h"
#include "compiler/machine/target_info.h"

namespace heddle::pass {

// Limit on all shared memory of a launch, copies included. With more, few blocks fit on a
// multiprocessor, and other blocks hide waiting as well.
inline constexpr int64_t kMaxDoubledBytes = 48 << 10;
// The same for launches with tensor cores. Their threads take so many registers that few blocks fit
// anyway. Every architecture with tensor cores allows this much.
inline constexpr int64_t kMaxDoubledTensorBytes = 96 << 10;

// Before: no blocks, no barriers. After: the same, except for loops whose iterations first fill
// shared memory of their own from buffers that the launch does not write, and then use it. In these
// loops the memory has two halves: while an iteration uses one, the data of the next iteration is
// fetched into the other. A back end that copies asynchronously then has the time of a whole
// iteration. With tensor cores, whose iterations are short, the memory has three parts if they fit,
// and a copy has the time of two iterations. If the target makes the products by four warps at a
// time, the memory has four parts, or three, of all that a block may have; a fetch comes after the
// product and goes neither where this product reads nor where the one before it read, so that a
// product may still run during the next iteration.
ir::Program OverlapFetches(const ir::Program& program, const machine::TargetInfo& target);

}  // namespace heddle::pass
