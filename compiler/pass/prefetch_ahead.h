// Fetches weights while the arithmetic before them runs.
#pragma once

#include "compiler/ir/ir.h"

namespace heddle::pass {

// A panel: what one iteration of a loop reads of a const input, if it lies in one piece. Smaller
// ones come as fast as the hardware's own prefetching finds them; of larger ones two do not fit
// into a second-level cache.
inline constexpr int64_t kMinPanelBytes = 8 << 10;
inline constexpr int64_t kMaxPanelBytes = 1 << 20;

// Before: no blocks, no `prefetch`. After: the same, but where iterations of a loop read panels
// that follow each other, each iteration asks for the panel of the next one, spread evenly over a
// loop inside: a product's weights come from memory while it multiplies with those before them. A
// model's weights seldom wait in a cache, and without this the first use of each waits for memory.
ir::Program PrefetchAhead(const ir::Program& program);

}  // namespace heddle::pass
