#include "scheduler/core/machines/contest.h"

#include <algorithm>

#include "scheduler/core/machines/trial_budget.h"

namespace heddle::scheduler {
namespace {

int Counted(const Job& job, const Task& task) {
  return (job.params.force ? 0 : task.known.total) + task.trials;
}

// Whether all tasks of both plans have had their floor of trials and the best times of one plan sum to more than
// contest_clear times those of the other. What is saved between kernels is left to the plan stage.
bool IsClear(const Job& job, const DispatcherOptions& options) {
  const int floor = TrialFloor(job);
  double chosen = 0, rival = 0;
  for (const Task& task : job.tasks) {
    if (Uses(task) == 0) continue;
    if (task.best_ns <= 0 || (!Is<Finished>(task.phase) && Counted(job, task) < floor))
      return false;
    chosen += task.weight * task.best_ns;
    rival += task.rival_weight * task.best_ns;
  }
  return std::max(chosen, rival) > options.contest_clear * std::min(chosen, rival);
}

}  // namespace

bool MayContend(const Job& job, const DispatcherOptions& options) {
  const int floor = TrialFloor(job), total = PoolTotal(job);
  int owed = 0;
  for (const Task& task : job.tasks) {
    if (Uses(task) > 0) owed += std::max(0, floor - Counted(job, task));
  }
  return total > 0 && owed <= options.contest_share * total;
}

double ExpectedUses(const Job& job, const Task& task) {
  return Contending(job) ? (task.weight + task.rival_weight) / 2.0 : task.weight;
}

bool ContestOver(const Job& job, const DispatcherOptions& options, absl::Duration tuned) {
  if (!Contending(job)) return false;
  const int total = PoolTotal(job);
  return PoolUsed(job) >= options.contest_share * total ||
         (job.params.time_limit != absl::InfiniteDuration() &&
          tuned >= job.params.time_limit * options.contest_share) ||
         IsClear(job, options);
}

}  // namespace heddle::scheduler
