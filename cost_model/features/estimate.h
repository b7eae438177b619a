// Estimates how long a statement takes on a CPU core, from its loops, its accesses and the rates of
// the target (CoreSpeed, PriorFit). The estimate orders schedules before there is a model, and is a
// feature of the model.
#pragma once

#include "compiler/machine/target_info.h"
#include "cost_model/features/statements.h"

namespace heddle::cost_model {

// Cycles that all executions take on one core, for each resource. The four resources work in
// parallel.
struct CycleEstimate {
  // Vector operations; a multiplication and an addition count as one. Additions to one accumulator
  // wait for each other, so a sum with few accumulators takes longer.
  double arithmetic = 0;
  // Loads and, at the same time, stores. Each pass of the register tile (RegisterLevel) loads its operands; a vector
  // that is not contiguous is loaded element by element. Accumulators are loaded and stored once
  // for all iterations of the loops directly outside the tile that do not move them. Accumulators
  // for which there is no register are loaded and stored at each step.
  double moves = 0;
  double issue =
      0;  // instructions; a core issues fewer in a cycle if the tile is too long to be kept decoded
  double fill = 0;  // bytes from beyond the first-level cache, or the second-level one

  double Longest() const;
};

CycleEstimate EstimateCycles(const Statement& st, const machine::TargetInfo& target);

// Cores that the statement's parallel loops keep busy; at least one.
double BusyCores(const Statement& st, const machine::TargetInfo& target);

}  // namespace heddle::cost_model
