// Shrinks allocations to what is used between two of their births.
#pragma once

#include "compiler/ir/ir.h"

namespace heddle::pass {

// Before: no blocks; an allocation may have the shape of the whole tensor although it stands inside
// loops that each need a tile of it. After: each dimension of an allocation is as wide as the
// accesses in its body reach while the loops outside stand still, and indices count from the tile's
// corner. Dimensions in which the corners of the accesses differ by more than a constant keep their
// extent. The innermost dimension of a local allocation may grow to what its accesses would reach
// without their guards.
ir::Program CompactBuffers(const ir::Program& program);

}  // namespace heddle::pass
