// Adds the barriers of GPU programs.
#pragma once

#include "compiler/ir/ir.h"

namespace heddle::pass {

// Before: no blocks. Existing barriers are kept. After: within each launch and outside of thread
// loops, a barrier stands between two statements if both may touch one element of shared memory, or
// of global memory that the launch writes, and one of them writes it. This holds in program order
// and from one iteration of a loop to the next. Accesses whose indices are proven to differ need no
// barrier, so a buffer whose halves are used in turns needs one barrier instead of two. No barrier
// can stand within a thread loop; there the schedule is responsible for the order of statements.
ir::Program InsertBarriers(const ir::Program& program);

}  // namespace heddle::pass
