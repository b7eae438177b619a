#include "scheduler/core/machines/contest.h"

#include <algorithm>
#include <array>
#include <limits>

#include "scheduler/core/machines/trial_budget.h"

namespace heddle::scheduler {
namespace {

int Counted(const Job& job, const Task& task) {
  return (job.params.force ? 0 : task.known.total) + task.trials;
}

// A plan, by the best times of its tasks.
struct Standing {
  bool any = false;   // it has tasks
  double ns = 0;      // of one inference
  bool tuned = true;  // every task has a time and has had its floor of trials
  double chance = 0;  // before the sum of all is made 1
};

Standing StandingOf(const Job& job, int floor, int Task::*uses) {
  Standing standing;
  bool known = true;
  for (const Task& task : job.tasks) {
    if (task.*uses <= 0) continue;
    standing.any = true;
    known &= task.best_ns > 0;
    standing.tuned &= Is<Finished>(task.phase) || Counted(job, task) >= floor;
    standing.ns += task.*uses * task.best_ns;
  }
  standing.tuned &= known;
  if (!known) standing.ns = std::numeric_limits<double>::infinity();
  return standing;
}

}  // namespace

bool MayContend(const Job& job, const DispatcherOptions& options) {
  if (job.params.allocation != Allocation::kGradient || !Contending(job)) return false;
  const int floor = TrialFloor(job), total = PoolTotal(job);
  int owed = 0;
  for (const Task& task : job.tasks) {
    if (Uses(task, true) > 0) owed += std::max(0, floor - Counted(job, task));
  }
  return total > 0 && owed <= options.contest_share * total;
}

PlanChances ChancesOf(const Job& job, const DispatcherOptions& options) {
  if (!Contending(job)) return {};
  const int floor = TrialFloor(job);
  constexpr size_t kChosen = 0, kEstimated = 1, kRival = 2;
  std::array<Standing, 3> plans = {StandingOf(job, floor, &Task::weight),
                                   StandingOf(job, floor, &Task::estimated_weight),
                                   StandingOf(job, floor, &Task::rival_weight)};
  const bool two = std::all_of(job.tasks.begin(), job.tasks.end(), [](const Task& task) {
    return task.rival_weight == task.estimated_weight;
  });
  plans[kRival].any &= !two;
  double fastest = std::numeric_limits<double>::infinity(), sum = 0;
  for (const Standing& plan : plans) {
    if (plan.any) fastest = std::min(fastest, plan.ns);
  }
  int left = 0;
  PlanChances chances;
  for (size_t i = 0; i < plans.size(); ++i) {
    Standing& plan = plans[i];
    plan.chance = plan.any ? 1 : 0;
    if (plan.any && plan.tuned) {
      const double behind = (plan.ns / fastest - 1) / (options.contest_clear - 1);
      plan.chance = behind > 1 ? 0 : i == kEstimated ? 1 : 1 - behind;
    }
    if (plan.chance <= 0) continue;
    sum += plan.chance;
    chances.clear = plan.tuned && left == 0;
    ++left;
  }
  chances.chosen = plans[kChosen].chance / sum;
  chances.estimated = plans[kEstimated].chance / sum;
  chances.rival = plans[kRival].chance / sum;
  return chances;
}

double ExpectedUses(const Task& task, const PlanChances& chances) {
  return chances.chosen * task.weight + chances.rival * task.rival_weight +
         chances.estimated * task.estimated_weight;
}

bool ContestOver(const Job& job, const DispatcherOptions& options, absl::Duration tuned) {
  if (!Contending(job)) return false;
  const int total = PoolTotal(job);
  return PoolUsed(job) >= options.contest_share * total ||
         (job.params.time_limit != absl::InfiniteDuration() &&
          tuned >= job.params.time_limit * options.contest_share) ||
         ChancesOf(job, options).clear;
}

}  // namespace heddle::scheduler
