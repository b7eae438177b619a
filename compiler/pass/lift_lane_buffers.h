// Moves allocations out of vectorized loops.
#pragma once

#include "compiler/ir/ir.h"

namespace heddle::pass {

// Before: no blocks. After: no allocation stands inside a vectorized loop; one that did stands
// around the loop and has one more dimension, innermost, with an element per lane. So its accesses
// are vector loads and stores, and registers in the end.
ir::Program LiftLaneBuffers(const ir::Program& program);

}  // namespace heddle::pass
