// Tunes two contenders for a job's plan side by side, until one is clearly the faster one, and then decides.
//
// After a survey, the plan is chosen by what kernels take with their default schedules. That does not tell what they
// take once tuned. So the plan stage also names the tasks of the estimated plan, the rival, with their uses in it
// (Task.rival_weight). While the job has such tasks, it contends:
//   - The tasks of both plans get trials from the job's pool, to whichever is expected to save the most time of the
//     plan that wins. Each may win, so a task of one plan counts half as much as one of both (ExpectedUses).
//   - All other tasks wait, as in a survey, because the next choice may need them.
//   - The contest ends when one plan is clearly the faster one, or when half of the pool or of the time is used.
// Then the rounds in flight are finished, and a plan stage chooses by the best times. If it chooses another plan than
// the estimated one, modules by these two are compared on a device before any further trial (Judging), since by now
// both had the same chance. The plan stays only if its module is surely the faster one (KeepsPlan). The rest of the
// budget goes to the tasks of the plan that stays. A job that compares no modules (JobParams.compare) goes by the
// times of kernels.
//
// Where a rival is named and there can be no contest, the estimated plan stays: tuned kernels of the other plan would
// be compared with untuned ones. That is so with too few trials for both plans, and with uniform allocation, which
// gives each task the same, whatever it may gain.
#pragma once

#include "absl/time/time.h"
#include "scheduler/core/job_state.h"
#include "scheduler/core/machines/retry.h"

namespace heddle::scheduler {

// Whether the contest's share of the pool gives the floor to every task of both plans. With less, the plan that
// happens to get the trials would win.
bool MayContend(const Job& job, const DispatcherOptions& options);

// How many uses of the task the model has, as far as is known: in the mean of the two plans while these contend.
double ExpectedUses(const Job& job, const Task& task);

// Whether a job contends and begins no further round for it. `tuned` is the time that the job has spent tuning.
bool ContestOver(const Job& job, const DispatcherOptions& options, absl::Duration tuned);

}  // namespace heddle::scheduler
