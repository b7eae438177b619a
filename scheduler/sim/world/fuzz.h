// Worlds at random, to look for events under which the scheduler breaks a promise.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "scheduler/sim/world/world.h"

namespace heddle::sim {

// Machines, jobs, durations and faults, all from the seed. Without faults nothing goes wrong in it.
Scenario RandomScenario(uint64_t seed, bool faults);

// One seed with every check on.
absl::StatusOr<WorldResult> FuzzSeed(uint64_t seed, const std::string& policy, bool faults,
                                     Planted planted = Planted::kNone);

// A job tuned with the scheduler's process killed again and again has the records of one that ran
// undisturbed, if no task of it has two rounds in flight. Empty, or what differs.
absl::StatusOr<std::string> CheckResume(uint64_t seed, const std::string& policy);
// Where tasks have, what the model lacks when they propose hangs on how fast all goes: the records
// differ, but each job has as many of them. Empty, or what differs.
absl::StatusOr<std::string> CheckPipelinedResume(uint64_t seed, const std::string& policy);

struct FuzzTotals {
  int64_t seeds = 0, steps = 0, trials = 0, restarts = 0, faults = 0, lost = 0, done_jobs = 0,
          stale = 0;
  std::string violation;  // of the smallest seed that has one
  uint64_t seed = 0;      // that one
};

// Seeds first, first + 1, .. on `threads` threads; stops at the first violation. `progress` is
// called from one thread, about twice a second.
absl::StatusOr<FuzzTotals> Fuzz(uint64_t first, uint64_t count, const std::string& policy,
                                Planted planted, int threads,
                                const std::function<void(const FuzzTotals&)>& progress);

}  // namespace heddle::sim
