// Moves allocations out of vectorized loops.
#pragma once

#include "compiler/ir/ir.h"

namespace heddle::pass {

// Before: no blocks. After: no allocation stands inside a vectorized loop. Allocations that did now
// stand around the loop and have a new innermost dimension, with one element for each vector lane.
// So their accesses become vector loads and stores, and finally registers.
ir::Program LiftLaneBuffers(const ir::Program& program);

}  // namespace heddle::pass
