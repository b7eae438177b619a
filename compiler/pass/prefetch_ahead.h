// Fetches weights while the arithmetic before them runs.
#pragma once

#include "compiler/ir/ir.h"
#include "compiler/machine/target_info.h"

namespace heddle::pass {

// A panel is what one iteration of a loop reads of a const input, if it is contiguous.
//
// Before: no blocks, no `prefetch`. After: the same, but where iterations of a loop read panels
// that follow each other, each iteration asks for the panel of the next one, spread evenly over a
// loop inside: a product's weights come from memory while it multiplies with those before them. A
// model's weights are seldom in a cache, and without this the first use of each waits for memory.
// FetchFit says how large a panel has to be and how many lines are asked for at once.
ir::Program PrefetchAhead(const ir::Program& program, const machine::TargetInfo& target);

}  // namespace heddle::pass
