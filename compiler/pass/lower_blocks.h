// Replaces every block by its statement.
#pragma once

#include "compiler/ir/ir.h"

namespace heddle::pass {

// Before: a verified program that may contain blocks. After: no blocks. A block has become
// `if where { store }`, a reduction `if where { element = op(element, value) }`. The initialisation
// of a reduction stands in spatial loops of its own before the outermost loop that runs over its
// reduce iterators, if nothing else under that loop touches the buffer; otherwise it stands under
// `reduce iterators == 0` right before the update. If it stands outside, a back end can keep the
// element in a register during the reduction.
ir::Program LowerBlocks(const ir::Program& program);

}  // namespace heddle::pass
