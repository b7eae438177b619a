// Replaces every block by its statement.
#pragma once

#include "compiler/ir/ir.h"

namespace heddle::pass {

// Before: a verified program that may contain blocks. After: none; a block is `if where { store }`,
// a reduction `if where { element = op(element, value) }`, and the initialisation of a reduction
// stands in spatial loops of its own before the outermost loop that runs over its reduce iterators,
// where that is legal (nothing else under that loop touches the buffer), else under `reduce
// iterators == 0` right before the update. Initialising outside is what lets a back end keep the
// element in a register during the reduction.
ir::Program LowerBlocks(const ir::Program& program);

}  // namespace heddle::pass
