// Pads the rows of shared memory that tensor cores read, against bank conflicts.
#pragma once

#include "compiler/ir/ir.h"
#include "compiler/machine/target_info.h"

namespace heddle::pass {

// Before: no blocks. After: the same, except that a shared buffer that tensor loops read, and whose
// rows are an even number of pieces long, has one more piece at the end of each row. A piece has 16
// bytes: a warp reads a piece of each of eight rows at a time, and rows that are an odd number of
// pieces apart lie in different banks. An f32 operand that is contiguous along rows or columns of
// the product is read word by word, eight words from each of four rows of terms; for it a piece has
// eight elements. Operands of products that the target makes by four warps at a time stay as they
// are: their panels have no conflicts (ir/analysis/group_product.h).
ir::Program PadShared(const ir::Program& program, const machine::TargetInfo& target);

}  // namespace heddle::pass
