// Rows of shared memory that tensor cores read, laid out for its banks.
#pragma once

#include "compiler/ir/ir.h"

namespace heddle::pass {

// Before: no blocks. After: the same, but shared buffers that tensor loops read have a few elements
// more at the end of each row where rows are an even number of pieces. A warp reads 16 bytes of
// each of eight rows at a time; an odd distance, in such pieces, puts them into different banks.
// f32 that is contiguous along rows or columns of the product is read by the word, eight of each of
// four rows (of terms): there a piece is eight elements.
ir::Program PadShared(const ir::Program& program);

}  // namespace heddle::pass
