// How long a statement takes on a core of a CPU: an estimate from its loops, its accesses and the
// target's rates (CoreSpeed, PriorFit). It orders schedules before there is a model, and is a
// feature of one.
#pragma once

#include "compiler/machine/target_info.h"
#include "cost_model/features/statements.h"

namespace heddle::cost_model {

// Cycles of all executions on one core, by what takes them. All four run at the same time.
struct CycleEstimate {
  // Vector operations, a multiplication and an addition as one. A sum is a chain: each step waits
  // for the one before on the same accumulator, so few accumulators take longer.
  double arithmetic = 0;
  // Loads and stores. A register tile (RegisterLevel) reads its operands; a vector that is not
  // contiguous is read element by element. Accumulators are loaded and stored once for all loops
  // directly outside the tile over which they stand still. Those without a register are loaded and
  // stored at each step.
  double moves = 0;
  double issue =
      0;  // instructions; fewer a cycle if the tile does not fit where decoded ones are kept
  double fill = 0;  // bytes from beyond the first-level cache, or the second-level one

  double Longest() const;
};

CycleEstimate EstimateCycles(const Statement& st, const machine::TargetInfo& target);

// Cores that the statement's parallel loops keep busy; at least one.
double BusyCores(const Statement& st, const machine::TargetInfo& target);

}  // namespace heddle::cost_model
