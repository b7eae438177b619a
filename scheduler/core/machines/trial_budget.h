// How many trials jobs and tasks may measure. Pure functions of a job's state.
//
// Under uniform allocation a task may measure trials_per_task less its known records. Under
// gradient allocation the job has a pool of trials_per_task x tasks less what is known
// (GradientBudget); each round takes its trials from the pool.
#pragma once

#include <vector>

#include "absl/types/span.h"
#include "scheduler/core/job_state.h"

namespace heddle::scheduler {

inline bool IsGradient(const Job& job) { return job.params.allocation == Allocation::kGradient; }

// Trials a job may measure in all, whose tasks have so many known records.
int TrialBudget(const JobParams& params, absl::Span<const int> known);
// The same of a job as it stands.
int TrialBudget(const Job& job);
// What Task.budget has to be at least: under gradient allocation the trials that have begun.
int Allowance(const Job& job, const Task& task);
// Whether the task has nothing to measure any more, whatever the job would grant it.
bool NothingLeft(const Job& job, const Task& task);
// Gradient allocation: trials that no task was granted yet.
int PoolLeft(const Job& job);
// Trials under which every task of a gradient job is served before gains are compared.
int TrialFloor(const Job& job);
// Gradient allocation: trials that the task would be granted for its next round, with the job's
// TrialFloor and PoolLeft. Trials are kept back for tasks under the floor and, up to their uniform
// share, for `followed` tasks: those whose partner has a round in flight.
int GrantFor(const Job& job, TaskIndex index, int floor, int left,
             const std::vector<bool>& followed);

}  // namespace heddle::scheduler
