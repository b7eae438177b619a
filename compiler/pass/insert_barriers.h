// Adds the barriers of GPU programs.
#pragma once

#include "compiler/ir/ir.h"

namespace heddle::pass {

// Before: no blocks. Barriers that exist are kept. After: within each launch, and outside of thread
// loops, a barrier stands between any two statements of which one writes an element of shared
// memory, or of global memory that the launch writes, that the other may touch: in program order,
// and from one iteration of a loop to the next. Accesses whose indices are proven to differ do not
// count, so that a buffer whose halves are used in turns needs one barrier and not two. No barrier
// can stand within a thread loop: the schedule answers for the order of statements there.
ir::Program InsertBarriers(const ir::Program& program);

}  // namespace heddle::pass
