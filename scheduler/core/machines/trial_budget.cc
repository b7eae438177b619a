#include "scheduler/core/machines/trial_budget.h"

#include <algorithm>
#include <cmath>

namespace heddle::scheduler {
namespace {

int Reused(const JobParams& params, const Task& task) {
  return params.force ? 0 : task.known.total;
}

GradientBudget BudgetOf(const Job& job) {
  std::vector<int> known;
  known.reserve(job.tasks.size());
  for (const Task& task : job.tasks) {
    if (task.weight > 0) known.push_back(Reused(job.params, task));
  }
  return MakeGradientBudget(job.params.trials_per_task, job.params.batch, known);
}

// Trials of one task, known records included, that uniform allocation grants.
int Share(const Job& job, const Task& task) {
  if (Surveying(job)) return 1;
  // Contending looks at all tasks, and this is asked for each of them.
  const bool used = task.weight > 0 || Uses(task, Contending(job)) > 0;
  return used ? job.params.trials_per_task : 0;
}

// Of the task's budget, what the pool does not pay: the survey's trial of a task that the plan has not.
int OutsidePool(const Task& task) { return task.weight > 0 ? 0 : std::min(task.budget, 1); }

// Trials of tasks that the plan has not, the survey's aside.
int OthersUsed(const Job& job) {
  int used = 0;
  for (const Task& task : job.tasks) used += task.weight > 0 ? 0 : task.budget - OutsidePool(task);
  return used;
}

// Of these, what the pool pays.
int PaidForOthers(const Job& job, const DispatcherOptions& options) {
  const double most = std::ceil(options.losers_share * BudgetOf(job).total);
  return static_cast<int>(std::min<double>(OthersUsed(job), most));
}

}  // namespace

bool Surveyed(const Job& job, const Task& task) {
  return task.exhausted || Reused(job.params, task) + task.trials > 0;
}

int TrialBudget(const JobParams& params, absl::Span<const int> known) {
  if (params.allocation == Allocation::kGradient)
    return MakeGradientBudget(params.trials_per_task, params.batch, known).total;
  int sum = 0;
  for (int records : known) sum += std::max(0, params.trials_per_task - records);
  return sum;
}

int TrialBudget(const Job& job, const DispatcherOptions& options) {
  const bool gradient = job.params.allocation == Allocation::kGradient;
  int sum = gradient ? BudgetOf(job).total + OthersUsed(job) - PaidForOthers(job, options) : 0;
  for (const Task& task : job.tasks) {
    if (gradient) {
      sum += OutsidePool(task);
    } else if (task.weight == 0) {
      sum += task.budget;
    } else {
      sum += std::max(task.budget, job.params.trials_per_task - Reused(job.params, task));
    }
  }
  return sum;
}

int Allowance(const Job& job, const Task& task) {
  const int begun = task.trials + static_cast<int>(task.open.size());
  if (IsGradient(job)) return begun;
  return std::max(begun, Share(job, task) - Reused(job.params, task));
}

bool NothingLeft(const Job& job, const Task& task) {
  if (task.exhausted) return true;
  // It goes on with the task if the plan needs it.
  if (Surveying(job)) return false;
  const int each = Share(job, task);
  if (each == 0 && Contending(job)) return false;
  const int counted = Reused(job.params, task) + task.trials + static_cast<int>(task.open.size());
  return counted >= (IsGradient(job) ? GradientCap(each) : each);
}

int PoolTotal(const Job& job) { return BudgetOf(job).total; }

int PoolUsed(const Job& job) {
  int used = 0;
  for (const Task& task : job.tasks) used += task.budget - OutsidePool(task);
  return used;
}

int PoolLeft(const Job& job, const DispatcherOptions& options) {
  return PoolTotal(job) - PoolUsed(job) + OthersUsed(job) - PaidForOthers(job, options);
}

int TrialFloor(const Job& job) { return BudgetOf(job).floor; }

int GrantFor(const Job& job, TaskIndex index, int floor, int left,
             const std::vector<bool>& followed) {
  const Task& task = job.tasks[index.value];
  auto owed = [&](const Task& other, int up_to) {
    return std::max(0, up_to - Reused(job.params, other) - other.budget);
  };
  const bool contending = Contending(job);
  int kept = 0;
  for (size_t i = 0; i < job.tasks.size(); ++i) {
    const Task& other = job.tasks[i];
    if (static_cast<int>(i) == index.value || Is<Finished>(other.phase) ||
        Uses(other, contending) == 0)
      continue;
    kept += owed(other, followed[i] ? job.params.trials_per_task : floor);
  }
  const int free = std::max(left - kept, std::min(left, owed(task, floor)));
  return std::min({job.params.batch, free, owed(task, GradientCap(job.params.trials_per_task))});
}

}  // namespace heddle::scheduler
