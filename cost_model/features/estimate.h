// How long a statement takes on a core of a CPU, from what it is made of and nothing that was
// measured: an estimate that orders schedules before there is a model, and is a feature of one.
#pragma once

#include "compiler/machine/target_info.h"
#include "cost_model/features/statements.h"

namespace heddle::cost_model {

// In cycles, of all executions on one core; what is done side by side takes as long as the longest.
struct CycleEstimate {
  // Two vector operations a cycle, multiplications joined with additions. A sum is a chain in which
  // every step waits four cycles for the one before: that takes longer with few accumulators.
  double arithmetic = 0;
  // Two loads or stores a cycle: what a register tile (RegisterLevel) reads, a vector that does not
  // lie together element by element; its accumulators, once for all loops directly outside it over
  // which they stand still; those that find no register are stored and loaded at each step.
  double moves = 0;
  double issue = 0;  // six instructions a cycle; two where a tile is too long for what keeps them
  double fill = 0;   // 32 bytes a cycle from beyond L1, 8 from beyond L2

  double Longest() const;
};
CycleEstimate EstimateCycles(const Statement& st, const machine::TargetInfo& target);

// Cores that the statement's parallel loops keep busy; at least one.
double BusyCores(const Statement& st, const machine::TargetInfo& target);

}  // namespace heddle::cost_model
