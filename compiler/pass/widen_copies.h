// Copies rows in vectors where their pixels are too narrow for one.
#pragma once

#include "compiler/ir/ir.h"

namespace heddle::pass {

// Fewer elements are copied one by one.
inline constexpr int64_t kMinWidenedElements = 4;

// Before: no blocks. After: the same, but where a nest of serial loops does nothing but store a
// constant or what it loads, or either by a condition, and its innermost loops, on which that does
// not depend, together walk both buffers element by element
// without a gap, these loops are one over vectors of a cache line, and one shorter vector for what
// is left. So the rows of an image with three channels are padded about as fast as those of one
// with sixteen: a schedule can make vectors of whole dimensions only. It is after the loops were
// cut where guards change that such a nest is without them.
ir::Program WidenCopies(const ir::Program& program);

}  // namespace heddle::pass
