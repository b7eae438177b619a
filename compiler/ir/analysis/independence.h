// Whether iterations of a loop write different elements: what the verifier asks of whole programs,
// for those who are about to make a loop concurrent.
#pragma once

#include <vector>

#include "compiler/ir/ir.h"

namespace heddle::ir {

// True only if a store to `indices` (in loop variables) surely touches different elements in any
// two iterations of loops[0], while the loops after it, those inside, run through their ranges.
// Variables that belong to none of them stand still.
bool WritesApart(const std::vector<Expr>& indices, const Buffer& buffer,
                 const std::vector<const For*>& loops);

}  // namespace heddle::ir
