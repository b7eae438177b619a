// What the loops of a statement mean on a target: lanes, registers, instructions.
#pragma once

#include <vector>

#include "compiler/machine/target_info.h"
#include "cost_model/features/statements.h"

namespace heddle::cost_model {

bool IsCpuParallel(const Loop& loop);

// Products of the extents of a statement's loops of one kind.
double VectorLanes(const Statement& st);
double UnrolledCopies(const Statement& st);
double ParallelExtent(const Statement& st);
double GpuBlocks(const Statement& st);
double GpuThreads(const Statement& st);

// Bytes of one stored element.
double StoreSize(const Statement& st);

// Instructions per execution after vectorization. A vector of `lanes` elements takes as many
// registers as it fills.
double InstructionsPerTrip(const Statement& st, const machine::TargetInfo& target);

// The innermost loops that are all vectorized or unrolled form the register tile: straight-line
// code on registers. Returns the index of the outermost of them, or the number of loops if there
// are none.
size_t RegisterLevel(const Statement& st);

// Vector registers that hold what an access touches in one run of the register tile.
double Registers(const Statement& st, const Access& access, const machine::TargetInfo& target);

// The statement with the most work, and the first one of equals; null if there is none.
const Statement* MainStatement(const std::vector<Statement>& statements);

}  // namespace heddle::cost_model
