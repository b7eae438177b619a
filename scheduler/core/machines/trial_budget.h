// How many trials jobs and tasks may measure. Pure functions of a job's state.
//
// In a survey, every task may measure one trial if it has no known record. Afterwards only tasks with a
// weight count, and in a contest (contest.h) those of the other plans, too. Under uniform allocation, a task may
// measure trials_per_task minus its known records. Under gradient allocation, the job has a pool of
// trials_per_task x tasks minus the known records (GradientBudget), and each round takes its trials from the
// pool. Trials of tasks that the plan does not have are taken from it, too, with two exceptions. The first one
// of each task was the survey's. And a plan that wins a contest pays at most its losers_share
// (DispatcherOptions) for the others, because it may be worth far fewer trials than they have had.
#pragma once

#include <vector>

#include "absl/types/span.h"
#include "scheduler/core/job_state.h"
#include "scheduler/core/machines/retry.h"

namespace heddle::scheduler {

inline bool IsGradient(const Job& job) {
  return job.params.allocation == Allocation::kGradient && !Surveying(job);
}

// Whether a survey need not measure the task: it has a record already, or its search has nothing to try.
bool Surveyed(const Job& job, const Task& task);

// Trials that a job may measure in total; `known` holds the number of known records of each task.
int TrialBudget(const JobParams& params, absl::Span<const int> known);
// The same for a job in its current state, its survey included.
int TrialBudget(const Job& job, const DispatcherOptions& options);
// Least value of Task.budget; under gradient allocation, the trials that have begun.
int Allowance(const Job& job, const Task& task);
// Whether the task has nothing left to measure, whatever the job would grant it.
bool NothingLeft(const Job& job, const Task& task);
// Gradient allocation: trials of the pool, those granted included.
int PoolTotal(const Job& job);
// Gradient allocation: trials that tasks were granted, those of the survey aside that the plan has no use for.
int PoolUsed(const Job& job);
// Gradient allocation: trials of the pool that may still be granted. Negative: the plan that won a contest is worth
// fewer trials than its own tasks have had.
int PoolLeft(const Job& job, const DispatcherOptions& options);
// Gradient allocation: trials that every task gets before gains decide.
int TrialFloor(const Job& job);
// Gradient allocation: trials that the task would get for its next round. `floor` is the job's
// TrialFloor and `left` its PoolLeft. Trials are reserved for other tasks below the floor. For a
// `followed` task, one whose partner has a round in flight, they are reserved up to its uniform
// share.
int GrantFor(const Job& job, TaskIndex index, int floor, int left,
             const std::vector<bool>& followed);

}  // namespace heddle::scheduler
