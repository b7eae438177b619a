// Real runs as scenarios: what `heddle jobs trace` wrote, with its slots, arrivals and durations.
#pragma once

#include <string>

#include "scheduler/sim/scenario.h"

namespace heddle::sim {

// Each task makes as many trials as it did, in any order among tasks; each stage of a task takes
// what the stages of its kind took, in turn; build and profile by candidate. Stages that ended by a
// fault are left out, as are tasks without trials.
struct Recorded {
  Scenario scenario;       // under the policy of the scheduler that wrote the trace
  double makespan = 0;     // seconds from the first submission to the last end
  bool truncated = false;  // the first stages of some job are missing: others stand for them
};

// NotFound: no such file; InvalidArgument names what is missing in it.
absl::StatusOr<Recorded> ReadRecorded(const std::string& path);

}  // namespace heddle::sim
