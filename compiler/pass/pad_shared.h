// Pads the rows of shared memory that tensor cores read, against bank conflicts.
#pragma once

#include "compiler/ir/ir.h"

namespace heddle::pass {

// Before: no blocks. After: the same, except that a shared buffer that tensor loops read, and whose
// rows are an even number of pieces long, has one more piece at the end of each row. A warp reads a
// piece of 16 bytes of each of eight rows at a time; rows an odd number of pieces apart lie in
// different banks. f32 that is contiguous along rows or columns of the product is read by the word,
// eight words of each of four rows of terms: there a piece is eight elements.
ir::Program PadShared(const ir::Program& program);

}  // namespace heddle::pass
