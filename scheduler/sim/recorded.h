// Real runs as scenarios: what `heddle jobs trace` wrote, with its slots, arrivals and durations.
#pragma once

#include <string>

#include "scheduler/sim/scenario.h"

namespace heddle::sim {

// Each task makes as many trials as it did, in any order among tasks; each stage of a task takes
// what the stages of its kind took, in turn; build and profile by candidate. Stages that ended by a
// fault are left out, as are tasks without trials. The policy is the service's default: a trace
// does not tell its own. `makespan`: seconds from the first submission to the last end. NotFound:
// no such file; InvalidArgument names what is missing in it.
absl::StatusOr<Scenario> ReadRecorded(const std::string& path, double* makespan);

}  // namespace heddle::sim
