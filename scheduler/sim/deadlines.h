// Measures how many deadlines a policy meets that can be met. An instance is made backwards: jobs
// run one after another in a random order, and the deadline of each is the time at which it ended,
// plus a slack. A schedule that meets all deadlines therefore exists, but the policy knows neither
// the order nor the durations.
#pragma once

#include <cstdint>
#include <string>

#include "scheduler/sim/world/world.h"

namespace heddle::sim {

// `slack` is added to each deadline, as a share of the time from the job's arrival to its end in
// that schedule.
absl::StatusOr<Scenario> DeadlineInstance(uint64_t seed, double slack);

struct DeadlineTotals {
  int jobs = 0;  // jobs with a deadline
  int met = 0;
};
absl::StatusOr<DeadlineTotals> MeetDeadlines(const std::string& policy, uint64_t first,
                                             uint64_t count, double slack);

}  // namespace heddle::sim
