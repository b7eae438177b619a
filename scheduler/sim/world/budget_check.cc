#include "scheduler/sim/world/budget_check.h"

#include <algorithm>
#include <array>
#include <set>

#include "absl/strings/str_cat.h"

namespace heddle::sim {
namespace {

using namespace heddle::scheduler;  // NOLINT: as world.h

constexpr int kCap = 8;  // the most a task may get, in uniform shares (GradientCap)

int Reused(const Job& job, const Task& task) { return job.params.force ? 0 : task.known.total; }

bool Wants(const Task& task) {
  return std::holds_alternative<WantsPropose>(task.phase) ||
         std::holds_alternative<Proposing>(task.phase);
}

bool Contends(const Job& job) {
  return std::any_of(job.tasks.begin(), job.tasks.end(),
                     [](const Task& task) { return task.rival_weight > 0; });
}

// A job that still contends when it compiles goes on tuning afterwards.
bool Tunes(const Job& job) {
  return std::holds_alternative<Tuning>(job.phase) || std::holds_alternative<Planning>(job.phase) ||
         (Contends(job) && !job.final());
}

// Until its plan is settled, a job measures each task once, whatever its allocation.
bool SpendsUniformly(const Job& job) {
  return job.params.allocation == Allocation::kUniform || !job.settled;
}

int Share(const Job& job, const Task& task) {
  const bool counts =
      task.weight > 0 || (Contends(job) && (task.rival_weight > 0 || task.estimated_weight > 0));
  return !job.settled ? 1 : counts ? job.params.trials_per_task : 0;
}

int Floor(const Job& job) {
  const int each = job.params.trials_per_task;
  return std::min(each, std::max(job.params.batch, std::min(16, each / 8)));
}

// The tasks that only beaten plans have while plans contend. A plan is beaten if all of its tasks have had their floor of trials,
// and the best times of another plan sum to so much less.
std::set<TaskIndex> Beaten(const Job& job) {
  constexpr double kClear = 1.1 * (1 + 1e-9);
  if (!Contends(job)) return {};
  struct Plan {
    double ns = 0;
    bool known = true, tuned = true;
  };
  const auto uses = [](const Task& task) {
    return std::array<int, 3>{task.weight, task.rival_weight, task.estimated_weight};
  };
  std::array<Plan, 3> plans;
  for (const Task& task : job.tasks) {
    const bool had = std::holds_alternative<Finished>(task.phase) ||
                     Reused(job, task) + task.trials >= Floor(job);
    for (size_t p = 0; p < plans.size(); ++p) {
      if (uses(task)[p] == 0) continue;
      plans[p].ns += uses(task)[p] * task.best_ns;
      plans[p].known &= task.best_ns > 0;
      plans[p].tuned &= had;
    }
  }
  const auto beaten = [&](const Plan& plan) {
    return plan.known && plan.tuned && plan.ns > 0 &&
           std::any_of(plans.begin(), plans.end(), [&](const Plan& other) {
             return other.known && other.ns > 0 && plan.ns > kClear * other.ns;
           });
  };
  std::set<TaskIndex> tasks;
  for (size_t i = 0; i < job.tasks.size(); ++i) {
    bool has = false, wins = false;
    for (size_t p = 0; p < plans.size(); ++p) {
      if (uses(job.tasks[i])[p] == 0) continue;
      has = true;
      wins |= !beaten(plans[p]);
    }
    if (has && !wins) tasks.insert(TaskIndex{static_cast<int>(i)});
  }
  return tasks;
}

std::string Name(const Job& job, size_t task) {
  return absl::StrCat("j", job.id.value, " task ", task, ": ");
}

// Trials that a gradient job may measure: those whose results are not known yet, and at least the
// floor of every task without known records.
int Pool(const Job& job) {
  const int each = job.params.trials_per_task, floor = Floor(job);
  int left = 0, owed = 0;
  for (const Task& task : job.tasks) {
    if (task.weight == 0) continue;
    left += each - std::min(Reused(job, task), kCap * each);
    if (Reused(job, task) == 0) owed += floor;
  }
  return std::max(left, owed);
}

// Trials of the pool. Of those of a task that the plan has not, the first one was the survey's, and the pool pays half
// of itself for the others at most: a plan that wins a contest has the other half for its own tasks.
int Granted(const Job& job) {
  int own = 0, others = 0;
  for (const Task& task : job.tasks) {
    if (task.weight > 0) {
      own += task.budget;
    } else {
      others += std::max(0, task.budget - 1);
    }
  }
  return own + std::min(others, (Pool(job) + 1) / 2);
}

}  // namespace

// Whether trials of one task are known records of the other.
bool BudgetCheck::Shares(const Seen& a, const Seen& b) {
  return a.what != 0 && a.what == b.what && a.device != 0 && a.device == b.device;
}

int BudgetCheck::NumberOf(const std::string& text) {
  if (text.empty()) return 0;
  return numbers_.try_emplace(text, static_cast<int>(numbers_.size()) + 1).first->second;
}

const std::vector<int>& BudgetCheck::WhatsOf(const Job& job) {
  const auto [place, fresh] = whats_.try_emplace(job.id);
  if (!fresh) return place->second;
  for (const std::string& key : keys_.at(job.id))
    place->second.push_back(NumberOf(absl::StrCat(key, "|", job.params.record_target)));
  return place->second;
}

BudgetCheck::SeenTasks::const_iterator BudgetCheck::Find(const Key& task) const {
  const auto found =
      std::lower_bound(before_.begin(), before_.end(), task,
                       [](const auto& entry, const Key& key) { return entry.first < key; });
  return found != before_.end() && found->first == task ? found : before_.end();
}

void BudgetCheck::Before(const Dispatcher& dispatcher) {
  before_.clear();
  granted_.clear();
  stopped_.clear();
  contended_.clear();
  beaten_.clear();
  for (const auto& [id, job] : dispatcher.jobs()) {
    if (job.paused) paused_.insert(id);
    if (!job.stop.empty()) stopped_.insert(id);
    // A plan that is chosen gives tasks other weights, and nothing is granted meanwhile.
    if (!SpendsUniformly(job) && std::holds_alternative<Tuning>(job.phase))
      granted_[id] = Granted(job);
    if (Contends(job) && 2 * Granted(job) >= Pool(job)) contended_.insert(id);
    if (!SpendsUniformly(job) && std::holds_alternative<Tuning>(job.phase)) {
      for (const TaskIndex task : Beaten(job)) beaten_.insert({id, task});
    }
    if (!Tunes(job)) continue;
    const int device = NumberOf(job.params.device_key);
    for (size_t i = 0; i < job.tasks.size(); ++i) {
      const Task& task = job.tasks[i];
      if (std::holds_alternative<Finished>(task.phase)) continue;
      Seen seen;
      if (!job.params.force) seen.what = WhatsOf(job).at(i);
      seen.device = device;
      seen.known = task.known.total;
      seen.trials = task.trials;
      seen.budget = task.budget;
      seen.unproposed = task.budget - task.trials - static_cast<int>(task.open.size());
      seen.granted = !SpendsUniformly(job) && Wants(task);
      seen.measuring = std::holds_alternative<Measuring>(task.phase) ||
                       std::holds_alternative<Proposing>(task.phase);
      before_.push_back({{id, TaskIndex{static_cast<int>(i)}}, seen});  // in order, as the jobs are
    }
  }
}

std::string BudgetCheck::After(const Dispatcher& dispatcher, const std::vector<Change>& changes,
                               const Event& event) {
  // A job that now has a device knows the records for that device, or what its partners know if that
  // is more.
  if (const auto* found = std::get_if<RecordsFound>(&event)) {
    const Job& job = *dispatcher.FindJob(found->job);
    const int device = NumberOf(job.params.device_key);
    for (auto& [key, seen] : before_) {
      if (key.first != job.id || seen.device != 0 || device == 0) continue;
      const size_t index = static_cast<size_t>(key.second.value);
      int known = seen.known, twins = 0;
      if (!job.params.force && index < found->known.size())
        known = std::max(known, found->known[index].total);
      for (const auto& [other, its] : before_) {
        if (other == key || seen.what == 0 || its.what != seen.what) continue;
        if (other.first == job.id) twins += its.trials;
        if (other.first != job.id && its.device == device)
          known = std::max(known, its.known + its.trials);
      }
      if (job.tasks[index].known.total != known + twins)
        return absl::StrCat(Name(job, index), "knows ", job.tasks[index].known.total,
                            " records once it has a device, there are ", known + twins);
    }
  }
  // Each trial of a partner adds one known record, and nothing else does. Trials that a job made
  // before it had a device count once it has one.
  for (const auto& [key, seen] : before_) {
    if (seen.what == 0 || seen.device != 0) continue;
    const int now = NumberOf(dispatcher.FindJob(key.first)->params.device_key);
    if (now == 0) continue;
    for (auto& [other, its] : before_) {
      if (its.what == seen.what && its.device == now) its.known += seen.trials;
    }
  }
  for (const Change& change : changes) {
    if (const auto* done = std::get_if<FinishCandidate>(&change)) {
      const auto own = Find({done->job, done->task});
      if (own == before_.end()) continue;
      for (auto& [key, seen] : before_) {
        if (key != own->first && Shares(seen, own->second)) ++seen.known;
      }
    } else if (const auto* add = std::get_if<AddCandidates>(&change)) {
      if (stopped_.count(add->job)) return "a round began after the stop";
      const auto own = Find({add->job, add->task});
      if (own == before_.end() || own->second.what == 0 || paused_.count(add->job)) continue;
      for (const auto& [key, seen] : before_) {
        // A job without a device may still get the device of the other.
        const bool one = seen.what == own->second.what &&
                         (Shares(seen, own->second) || seen.device == 0 || own->second.device == 0);
        if (key != own->first && one && seen.measuring && !paused_.count(key.first))
          return absl::StrCat("j", add->job.value, " and j", key.first.value,
                              " measure one task at a time");
      }
    }
  }
  for (const auto& [key, seen] : before_) {
    const Job& job = *dispatcher.FindJob(key.first);
    const Task& task = job.tasks[static_cast<size_t>(key.second.value)];
    const int known = task.known.total;
    const int most = kCap * job.params.trials_per_task - Reused(job, task);
    if (seen.granted && Wants(task) && job.stop.empty() && Tunes(job) &&
        task.budget < std::min(seen.budget, most))
      return absl::StrCat(Name(job, static_cast<size_t>(key.second.value)),
                          "lost what it was granted, ", seen.budget, " trials, now ", task.budget);
    if (seen.what != 0 && seen.device != 0 && known != seen.known)
      return absl::StrCat(Name(job, static_cast<size_t>(key.second.value)), "knows ", known,
                          " records, there are ", seen.known);
  }
  // A search that proposes less than it was asked for gives the rest back, and another task may get it at once.
  std::map<JobId, int> given_back;
  std::set<Key> proposed;
  for (const Change& change : changes) {
    const auto* add = std::get_if<AddCandidates>(&change);
    const auto own = add == nullptr ? before_.cend() : Find({add->job, add->task});
    if (own == before_.end()) continue;
    proposed.insert(own->first);
    given_back[add->job] += std::max(0, own->second.unproposed - add->count);
  }
  for (const auto& [key, seen] : before_) {
    const Task& task = dispatcher.FindJob(key.first)->tasks[static_cast<size_t>(key.second.value)];
    if (!proposed.contains(key)) given_back[key.first] += std::max(0, seen.budget - task.budget);
  }
  for (const auto& [id, job] : dispatcher.jobs()) {
    const bool tuned = job.settled && !Contends(job) && std::holds_alternative<Planning>(job.phase);
    if (tuned && !tuned_.contains(id)) tuned_[id] = EndOfTuning(job);
    size_t devices = 0;
    for (size_t i = 0; i < job.tasks.size(); ++i) {
      const Task& task = job.tasks[i];
      if (Plateaued(job.params, task)) plateaued_.insert({id, TaskIndex{static_cast<int>(i)}});
      const int begun = task.trials + static_cast<int>(task.open.size());
      const int allowed = SpendsUniformly(job)
                              ? std::max(begun, Share(job, task) - Reused(job, task))
                              : std::max(begun, kCap * job.params.trials_per_task);
      if (begun > task.budget || task.budget > allowed)
        return absl::StrCat(Name(job, i), begun, " trials of ", task.budget, ", allowed ", allowed);
      devices += task.profiles.size();
    }
    if (job.params.max_devices > 0 && devices > static_cast<size_t>(job.params.max_devices))
      return absl::StrCat("j", id.value, " holds ", devices, " devices");
    if (!Tunes(job) || SpendsUniformly(job)) continue;
    for (const TaskIndex task : Beaten(job)) {
      const auto seen = Find({id, task});
      if (beaten_.contains({id, task}) && seen != before_.end() &&
          job.tasks[static_cast<size_t>(task.value)].budget > seen->second.budget)
        return Name(job, static_cast<size_t>(task.value)) + "was granted trials for a beaten plan";
    }
    const auto before = granted_.find(id);
    const int granted = Granted(job);
    if (before != granted_.end() && granted > before->second && granted > Pool(job))
      return absl::StrCat("j", id.value, " was granted ", granted, " trials of ", Pool(job));
    if (before != granted_.end() && granted > before->second && contended_.count(id) > 0 &&
        Contends(job) && 2 * (before->second - given_back[id]) >= Pool(job))
      return absl::StrCat("j", id.value, " was granted ", granted, " trials of ", Pool(job),
                          " while plans contend for half of them");
  }
  return "";
}

std::string BudgetCheck::End(const Job& job) const {
  const auto tuned = tuned_.find(job.id);
  return tuned != tuned_.end() ? tuned->second : EndOfTuning(job);
}

std::string BudgetCheck::EndOfTuning(const Job& job) const {
  if (!job.stop.empty()) return "";
  bool all_ended = true;
  for (size_t i = 0; i < job.tasks.size(); ++i) {
    const Task& task = job.tasks[i];
    if (task.weight == 0) continue;  // only its survey counts
    const bool given_up = task.valid() == 0 && task.trials >= 16;
    const int counted = Reused(job, task) + task.trials;
    const bool full = counted >= (SpendsUniformly(job) ? 1 : kCap) * job.params.trials_per_task;
    const bool ended = full || task.exhausted || given_up ||
                       plateaued_.count({job.id, TaskIndex{static_cast<int>(i)}});
    if (SpendsUniformly(job) && !ended)
      return absl::StrCat(Name(job, i), "a budget is not used up, ", counted, " trials of ",
                          job.params.trials_per_task, ", ", task.valid(), " of them valid");
    all_ended &= ended;
  }
  if (!SpendsUniformly(job) && !all_ended && Granted(job) < Pool(job))
    return absl::StrCat("j", job.id.value, " used ", Granted(job), " trials of ", Pool(job));
  return "";
}

}  // namespace heddle::sim
