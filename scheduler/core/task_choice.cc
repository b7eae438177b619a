#include "scheduler/core/task_choice.h"

#include <algorithm>
#include <limits>

namespace heddle::scheduler {
namespace {

// Weight of the backward term of the gain; the rest is the forward term.
constexpr double kBackward = 0.5;
constexpr int kWindowRounds = 3;  // rounds that the backward term covers
constexpr double kSimilar = 4;    // tasks are similar if their FLOP differ by at most this factor
constexpr double kHope = 1.5;  // a task may reach this multiple of the best FLOP/s of similar tasks
// One round in so many goes to the task with the fewest trials.
constexpr int64_t kExploreEvery = 16;
constexpr double kPlateauGain = 1.01;
constexpr int kCapTasks = 8;    // cap of a task, as a multiple of its uniform share
constexpr int kFloorShare = 8;  // floor of a task: this part of its uniform share, and
constexpr int kMostFloor = 16;  // no more than this, or than a batch

double Best(const ChoiceTask& task) { return task.curve.empty() ? 0 : task.curve.back().best_ns; }

// FLOP per ns of the fastest measured task among those with about as many FLOP as this one, its own included; of all
// tasks if there is none, and 1 if nothing was measured.
double ReachedFlops(absl::Span<const ChoiceTask> tasks, const ChoiceTask& task, bool* similar) {
  double alike = 0, any = 0;
  for (const ChoiceTask& other : tasks) {
    if (Best(other) <= 0) continue;
    const double reached = other.flops / Best(other);
    any = std::max(any, reached);
    if (other.flops <= kSimilar * task.flops && task.flops <= kSimilar * other.flops)
      alike = std::max(alike, reached);
  }
  *similar = alike > 0;
  return alike > 0 ? alike : any > 0 ? any : 1;
}

}  // namespace

double BestAt(absl::Span<const CurvePoint> curve, int trials) {
  double best = 0;
  for (const CurvePoint& point : curve) {
    if (point.trials > trials) break;
    best = point.best_ns;
  }
  return best;
}

bool OnPlateau(absl::Span<const CurvePoint> curve, int trials, int window) {
  if (curve.empty() || trials < window) return false;
  const double before = BestAt(curve, trials - window);
  return before > 0 && before <= kPlateauGain * curve.back().best_ns;
}

double ExpectedGain(const ChoiceTask& task, double bound_ns, int batch) {
  const double best = Best(task);
  // With no valid time yet, the first one saves most.
  if (best <= 0) return std::numeric_limits<double>::max();
  const int window = std::min(task.trials, kWindowRounds * batch);
  const double before = std::max(best, BestAt(task.curve, task.trials - window));
  const double back = (before - best) / std::max(1, window);
  const double ahead = std::max(0.0, best - bound_ns) / std::max(1, task.trials);
  return task.weight * (kBackward * back + (1 - kBackward) * ahead);
}

std::optional<size_t> ChooseTask(absl::Span<const ChoiceTask> tasks, const ChoiceOptions& options) {
  double device_ns = 0;
  int measured = 0;
  for (const ChoiceTask& task : tasks) {
    device_ns += task.device_ns;
    measured += task.device_ns > 0;
  }
  device_ns = measured > 0 ? device_ns / measured : 1;
  std::optional<size_t> fewest, chosen, owed;
  double chosen_rate = -1, owed_share = -1;
  for (size_t i = 0; i < tasks.size(); ++i) {
    const ChoiceTask& task = tasks[i];
    if (!task.eligible) continue;
    if (!fewest || task.trials < tasks[*fewest].trials) fewest = i;
    bool similar = false;
    const double reached = ReachedFlops(tasks, task, &similar);
    if (task.trials < options.floor) {
      const double ns = Best(task) > 0 ? Best(task) : task.flops / reached;
      const double share = task.weight * ns / (task.trials + options.batch);
      if (share > owed_share) owed = i, owed_share = share;
    }
    const double bound_ns = similar ? task.flops / (kHope * reached) : 0;
    const double rate = ExpectedGain(task, bound_ns, options.batch) /
                        (task.device_ns > 0 ? task.device_ns : device_ns);
    if (rate > chosen_rate) chosen = i, chosen_rate = rate;
  }
  if (owed) return owed;
  const bool explore = options.turn % kExploreEvery == kExploreEvery - 1;
  return explore ? fewest : chosen;
}

int GradientCap(int trials_per_task) { return kCapTasks * trials_per_task; }

GradientBudget MakeGradientBudget(int trials_per_task, int batch, absl::Span<const int> known) {
  GradientBudget budget;
  budget.floor = std::min(trials_per_task,
                          std::max(batch, std::min(kMostFloor, trials_per_task / kFloorShare)));
  int64_t total = static_cast<int64_t>(trials_per_task) * static_cast<int64_t>(known.size());
  int64_t owed = 0;  // floors of the tasks without any record
  for (int records : known) {
    total -= std::min(records, GradientCap(trials_per_task));
    if (records == 0) owed += budget.floor;
  }
  budget.total =
      static_cast<int>(std::min<int64_t>(std::max(total, owed), std::numeric_limits<int>::max()));
  return budget;
}

}  // namespace heddle::scheduler
