// Removes what is computed for nobody.
#pragma once

#include "compiler/ir/ir.h"

namespace heddle::pass {

// Before: no blocks. After: no allocation without a load of its buffer. It is gone, and so are the
// stores to it and what they alone read. Such buffers are left where conditions that were the only
// ones to read them turned out false. A back end drops those in registers by itself, but not those
// in memory that threads share.
ir::Program DropUnread(const ir::Program& program);

}  // namespace heddle::pass
