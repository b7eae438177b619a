// Moves allocations out of vectorized loops.
#pragma once

#include "compiler/ir/ir.h"

namespace heddle::pass {

// Before: no blocks. After: no allocation stands inside a vectorized loop. Those that did stand
// around it, with one more dimension, the innermost, that has an element per lane. So their
// accesses become vector loads and stores, and in the end registers.
ir::Program LiftLaneBuffers(const ir::Program& program);

}  // namespace heddle::pass
