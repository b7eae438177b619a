// Makes a scenario for the simulator of the jobs that wait and run now.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "scheduler/page/source.h"
#include "scheduler/sim/scenario.h"

namespace heddle::scheduler {

// Most jobs that are simulated: the oldest.
inline constexpr int kMostSimulatedJobs = 100;
// Most trials of all jobs together; with more, several trials of a task become one that takes as long.
inline constexpr int kMostSimulatedTrials = 4000;

struct QueueScenario {
  // Every job arrives at once and has the trials, the compilation and the comparison that it has still
  // to do. Its policy is that of the question.
  sim::Scenario scenario;
  std::vector<std::shared_ptr<const v1::Job>> jobs;  // those of scenario.jobs, in the same order
  std::vector<std::string> left_out;                 // which jobs were not taken: "2 paused"
  int trials_as_one = 1;
};

// Stages take as long as the DurationModel says after the question's records (times of builds and
// trials) and stages (all others, and these where no record has a time). Jobs that are paused, not
// imported, or that no usable slot suits are left out. FailedPrecondition: no job or no slot is left.
absl::StatusOr<QueueScenario> ScenarioOf(const WhatIfQuestion& question);

}  // namespace heddle::scheduler
