// Vectorizes copies of rows whose pixels are narrower than a vector.
#pragma once

#include "compiler/ir/ir.h"
#include "compiler/machine/target_info.h"

namespace heddle::pass {

// Fewer elements than this are copied one by one.
inline constexpr int64_t kMinWidenedElements = 4;

// Before: no blocks. After: the same, except for nests of serial loops around one store of a
// constant, of an element, or of an element where a condition holds and a constant elsewhere. If
// the innermost loops of such a nest together walk both buffers element by element, and the
// condition does not depend on them, they become one loop over vectors of a cache line, and one
// shorter vector for the rest. So the rows of an image with three channels are padded about as fast
// as those of an image with sixteen channels, which the schedule vectorizes.
ir::Program WidenCopies(const ir::Program& program, const machine::TargetInfo& target);

}  // namespace heddle::pass
