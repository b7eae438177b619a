// Prefetches operands of an epilogue while its reduction runs.
#pragma once

#include "compiler/ir/ir.h"
#include "compiler/machine/target_info.h"

namespace heddle::pass {

// Before: no blocks. After: the same, with prefetches before reduction loops. If statements after
// such a loop read inputs that are not constant, such as an operand that is added to each result,
// these inputs and the outputs that the statements write are requested line by line before the
// loop. Elements whose index is itself loaded are left out. The rows of a tile are too short for
// hardware prefetching. FetchFit says how large such a buffer has to be and how many lines a tile
// may request.
ir::Program PrefetchEpilogue(const ir::Program& program, const machine::TargetInfo& target);

}  // namespace heddle::pass
