// Measures how fast this machine's cores compute and move data, by loops that the compiler makes for
// the target as it makes kernels.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/vocabulary/target.h"
#include "compiler/machine/measured_machine.h"

namespace heddle {

struct MeasureMachineOptions {
  // The cores to measure, of which nobody else makes use meanwhile. The calling thread is pinned to
  // the first one until the end.
  std::vector<int> cpus;
  // What the rounds may take, beside about half a second to compile and to touch memory. Each figure
  // is the best of all rounds, because whatever disturbs makes it worse: on a virtual machine, other
  // guests, and a clock that halves for seconds.
  absl::Duration time = absl::Milliseconds(1200);
  // If the figures contradict each other after that, for instance because a cache seems slower than
  // memory, the rounds go on for as long again, at most so often.
  int extensions = 2;
  // Of several cores: the most of the first one's time that others may take meanwhile. On a busy host
  // the figures of one core are right, but several cores are seldom free together.
  double most_taken = 0.25;
};

// `target`: a CPU target that runs here; its -threads does not matter. Unimplemented: it is no CPU, or
// there is no way to measure its clock. Unavailable: the figures contradict each other to the end, or
// others took too much; the message says how. ResourceExhausted: too little memory.
absl::StatusOr<machine::MeasuredMachine> MeasureMachine(const Target& target,
                                                        const MeasureMachineOptions& options);

// OK unless the figures contradict each other. Unavailable, naming the first two that do.
absl::Status CheckConsistent(const machine::MeasuredMachine& machine);

}  // namespace heddle
