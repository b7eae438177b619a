// Whether iterations of a loop write different elements. The verifier asks this of whole programs;
// a schedule asks it before it makes a loop concurrent.
#pragma once

#include <vector>

#include "compiler/ir/ir.h"

namespace heddle::ir {

// True only if a store to `indices` (in loop variables) is proven to touch different elements in
// any two iterations of loops[0], while the loops after it, which stand inside, run through their
// ranges. Variables of other loops stand still.
bool WritesApart(const std::vector<Expr>& indices, const Buffer& buffer,
                 const std::vector<const For*>& loops);

}  // namespace heddle::ir
