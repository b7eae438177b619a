// Prefetches weights while the arithmetic before them runs.
#pragma once

#include "compiler/ir/ir.h"
#include "compiler/machine/target_info.h"

namespace heddle::pass {

// A panel is the part of a const input that one iteration of a loop reads, if that is contiguous.
//
// Before: no blocks, no `prefetch`. After: the same, except that if the iterations of a loop read
// panels that follow each other, each iteration prefetches the panel of the next one, spread evenly
// over an inner loop. So the weights of a product come from memory while it multiplies with those
// before them. The weights of a model are seldom in a cache, and without prefetching the first use
// of each waits for memory. FetchFit says how large a panel has to be and how many lines are
// requested at once.
ir::Program PrefetchAhead(const ir::Program& program, const machine::TargetInfo& target);

}  // namespace heddle::pass
