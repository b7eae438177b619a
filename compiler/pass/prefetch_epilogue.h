// Fetches what is combined with a reduction's results while the reduction runs.
#pragma once

#include "compiler/ir/ir.h"

namespace heddle::pass {

// A buffer of at most this size stays close by itself.
inline constexpr int64_t kMinEpilogueBytes = 64 << 10;
// The lines of one tile; more would crowd out what the reduction itself waits for.
inline constexpr int64_t kMaxEpilogueLines = 128;

// Before: no blocks. After: the same, but where statements follow a reduction loop and read inputs
// that are no constants (an operand that is added to each result), these are asked for before the
// loop, a line at a time, and so are the outputs they write; but none whose place is itself loaded.
// A tile's elements lie in as many places as it has rows, too short for the hardware's own
// prefetching.
ir::Program PrefetchEpilogue(const ir::Program& program);

}  // namespace heddle::pass
