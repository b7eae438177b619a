// How many deadlines a policy meets of those that can be met. Instances are made backwards: jobs
// are run one after another in an order drawn by chance, and each gets the moment it was done then,
// and a little, as its deadline. So a schedule that meets all of them exists; the policy is told
// neither the order nor the durations.
#pragma once

#include <cstdint>
#include <string>

#include "scheduler/sim/world/world.h"

namespace heddle::sim {

// `slack`: of the time from arrival to the end in that schedule, on top.
absl::StatusOr<Scenario> DeadlineInstance(uint64_t seed, double slack);

struct DeadlineTotals {
  int jobs = 0;  // with a deadline
  int met = 0;
};
absl::StatusOr<DeadlineTotals> MeetDeadlines(const std::string& policy, uint64_t first,
                                             uint64_t count, double slack);

}  // namespace heddle::sim
