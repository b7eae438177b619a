// Tunes the best few plans of a job side by side, until one is clearly the fastest, and then decides.
//
// After a survey, plans are compared by what kernels take with their default schedules. That does not tell what they
// take once tuned. So the plan stage also names the tasks of a rival, with their uses in it (Task.rival_weight). While the job
// has such tasks, it contends. Up to three plans take part: the chosen one (Task.weight), the estimated one
// (Task.estimated_weight), and the rival, which is the runner-up, or the estimated plan once more: then there are two.
//   - The tasks of these plans get trials from the job's pool, to whichever is expected to save the most time of the
//     plan that wins. What a task saves in a plan counts by the plan's chance to win (ChancesOf), so a task of all plans counts in
//     full and comes first.
//   - A plan that is clearly beaten has no chance. Tasks that only such plans have get no more trials.
//   - All other tasks wait, as in a survey, because the next choice may need them.
//   - The contest ends when one plan is left, or when half of the pool or of the time is used.
// Then the rounds in flight are finished, and a plan stage chooses by the best times. If it chooses another plan than
// the estimated one, modules by these two are compared on a device before any further trial (Judging), since by now
// both had the same chance. The plan stays only if its module is surely the faster one (KeepsPlan). The rest of the
// budget goes to the tasks of the plan that stays. A job that compares no modules (JobParams.compare) goes by the
// times of kernels.
//
// With too few trials for three plans, the runner-up takes no part. With too few for two, the estimated plan stays: tuned
// kernels of the other plan would be compared with untuned ones. So it does with uniform allocation, which gives each
// task the same, whatever it may gain.
#pragma once

#include "absl/time/time.h"
#include "scheduler/core/job_state.h"
#include "scheduler/core/machines/retry.h"

namespace heddle::scheduler {

// Whether the job contends, and the contest's share of its pool gives the floor to every task of all plans. With less, the
// plan that happens to get the trials would win.
bool MayContend(const Job& job, const DispatcherOptions& options);

// How likely each plan wins, as far as trials are shared by it. The sum is 1.
struct PlanChances {
  double chosen = 1, rival = 0, estimated = 0;  // where rival and estimated plan are one: estimated
  bool clear = false;  // one plan is left, and all of its tasks have had their floor of trials
};
// Plans are compared by the sums of their best times; what is saved between kernels is left to the plan stage. A plan of which not
// every task has had its floor may win as well as any other. Afterwards its chance falls with the time that it takes longer
// than the fastest, down to none at contest_clear times that. That of the estimated plan falls at once, at the end: nothing
// takes its trials before it is clearly beaten. A job that does not contend has one plan.
PlanChances ChancesOf(const Job& job, const DispatcherOptions& options);

// How many uses of the task the model has, as far as is known. 0: no plan that may win has the task.
double ExpectedUses(const Task& task, const PlanChances& chances);

// Whether a job contends and begins no further round for it. `tuned` is the time that the job has spent tuning.
bool ContestOver(const Job& job, const DispatcherOptions& options, absl::Duration tuned);

}  // namespace heddle::scheduler
