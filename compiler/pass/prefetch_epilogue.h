// Fetches what is combined with a reduction's results while the reduction runs.
#pragma once

#include "compiler/ir/ir.h"
#include "compiler/machine/target_info.h"

namespace heddle::pass {

// Before: no blocks. After: the same, but where statements follow a reduction loop and read inputs
// that are no constants (an operand that is added to each result), these are asked for before the
// loop, a line at a time, and so are the outputs they write; but none whose place is itself
// loaded. A tile's elements lie in as many places as it has rows, too short for hardware
// prefetching. FetchFit says how large such a buffer has to be and how many lines a tile may ask
// for.
ir::Program PrefetchEpilogue(const ir::Program& program, const machine::TargetInfo& target);

}  // namespace heddle::pass
