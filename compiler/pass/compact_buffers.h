// Shrinks allocations to what one run of their body uses.
#pragma once

#include "compiler/ir/ir.h"

namespace heddle::pass {

// Before: no blocks. An allocation may have the shape of the whole tensor although it stands inside
// loops whose iterations each need a tile of it. After: each dimension of an allocation is as wide
// as the accesses in its body reach while the loops outside stand still, and indices count from the
// tile's corner. A dimension in which the corners of the accesses differ by more than a constant
// keeps its extent. The innermost dimension of a local allocation may grow to what its accesses
// reach without their guards.
ir::Program CompactBuffers(const ir::Program& program);

}  // namespace heddle::pass
