// Makes scenarios of real runs: reads what `heddle jobs trace` wrote, with slots, arrivals and
// durations.
#pragma once

#include <string>

#include "scheduler/sim/scenario.h"

namespace heddle::sim {

// Each task makes as many trials as it did in the run; the order among tasks is free. The stages of
// a task take as long as its recorded stages of that kind, in turn; build and profile times are per
// candidate. Stages that ended by a fault and tasks without trials are left out.
struct Recorded {
  Scenario scenario;       // under the policy of the scheduler that wrote the trace
  double makespan = 0;     // seconds from the first submission to the last end
  bool truncated = false;  // the first stages of some job are missing; others replace them
};

// NotFound: no such file; InvalidArgument names what is missing in it.
absl::StatusOr<Recorded> ReadRecorded(const std::string& path);

}  // namespace heddle::sim
