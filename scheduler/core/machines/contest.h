// Tunes two contenders for a job's plan side by side, until one is clearly the faster one.
//
// After a survey, the plan is chosen by what kernels take with their default schedules. That does not tell what they
// take once tuned. So the plan stage also names the tasks of a second plan, the rival, with their uses in it
// (Task.rival_weight). While the job has such tasks, it contends:
//   - The tasks of both plans get trials from the job's pool, to whichever saves the most time of its plan (Uses).
//   - All other tasks wait, as in a survey, because the next choice may need them.
//   - The contest ends when one plan is clearly the faster one, or when half of the pool or of the time is used.
// Then the rounds in flight are finished, a plan stage chooses by the best times, and the rest of the budget goes to
// the tasks of the plan that it chose.
//
// Only jobs with gradient allocation contend: uniform allocation gives each task the same, whatever it may gain.
#pragma once

#include "absl/time/time.h"
#include "scheduler/core/job_state.h"
#include "scheduler/core/machines/retry.h"

namespace heddle::scheduler {

// Whether the contest's share of the pool gives the floor to every task of both plans. With less, the plan that
// happens to get the trials would win.
bool MayContend(const Job& job, const DispatcherOptions& options);

// Whether a job contends and begins no further round for it. `tuned` is the time that the job has spent tuning.
bool ContestOver(const Job& job, const DispatcherOptions& options, absl::Duration tuned);

}  // namespace heddle::scheduler
