// Puts the barriers of GPU programs.
#pragma once

#include "compiler/ir/ir.h"

namespace heddle::pass {

// Before: no blocks; barriers, if any, are kept. After: within each launch, a barrier stands
// between any two statements that may touch one element of shared memory (or of global memory that
// the launch writes) and of which one writes, outside of thread loops: in straight order, and from
// one iteration of a loop to the next. Elements are told apart where an index surely differs, so
// that of two halves of a buffer used in turns each needs one barrier, not two. Statements within
// one thread loop are the schedule's business: no barrier can stand there.
ir::Program InsertBarriers(const ir::Program& program);

}  // namespace heddle::pass
