// Keeps intermediate results that are 16-bit floats in f32.
#pragma once

#include "compiler/ir/ir.h"

namespace heddle::pass {

// Before: no blocks. After: the same, except that allocations of f16 and bf16 hold f32. A store
// still rounds to the 16-bit type, so every value is the same. What is read many times, such as a
// padded copy of an image, is then converted once, where it is stored. Inputs and outputs keep
// their types, and so do packed weights, which are outputs of the program that packs them.
ir::Program WidenHalves(const ir::Program& program);

}  // namespace heddle::pass
