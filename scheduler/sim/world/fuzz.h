// Random worlds, to search for events under which the scheduler breaks a promise.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "scheduler/sim/world/world.h"

namespace heddle::sim {

// Machines, jobs, durations and, if wanted, faults. Everything follows from the seed.
Scenario RandomScenario(uint64_t seed, bool faults);

// Runs the random world of the seed with every check on.
// With `fail_over`, another scheduler takes over wherever the faults would restart the one there is.
absl::StatusOr<WorldResult> FuzzSeed(uint64_t seed, const std::string& policy, bool faults,
                                     Planted planted = Planted::kNone, bool fail_over = false);

// Jobs whose scheduler is killed again and again must end with the same records as undisturbed ones.
// No task has two rounds in flight here. Returns what differs, or nothing.
absl::StatusOr<std::string> CheckResume(uint64_t seed, const std::string& policy);
// The same with two or more rounds of a task in flight. What a model lacks when its task proposes then
// depends on timing. So the records may differ, but each job must have as many of them.
absl::StatusOr<std::string> CheckPipelinedResume(uint64_t seed, const std::string& policy);

struct FuzzTotals {
  int64_t seeds = 0, steps = 0, trials = 0, restarts = 0, faults = 0, lost = 0, done_jobs = 0,
          stale = 0, orders = 0, warm_orders = 0, transfer_orders = 0, contests = 0, judged = 0,
          relieved = 0, fail_overs = 0, late_writes = 0, dropped = 0;
  std::string violation;  // of the smallest seed that has one
  uint64_t seed = 0;      // the seed of `violation`
};

// Runs `count` seeds from `first` on with `threads` threads and stops at the first violation. In the worlds
// of odd seeds, schedulers take over from each other.
// `progress` is called from one thread, about twice a second.
absl::StatusOr<FuzzTotals> Fuzz(uint64_t first, uint64_t count, const std::string& policy,
                                Planted planted, int threads,
                                const std::function<void(const FuzzTotals&)>& progress);

}  // namespace heddle::sim
