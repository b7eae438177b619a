// Tasks that several jobs have in common are tuned once: see the head of dispatcher.h.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "scheduler/core/dispatcher.h"
#include "scheduler/core/task_choice.h"

namespace heddle::scheduler {
namespace {

// Empty: shares with nobody.
std::string GroupOf(const Job& job, const Task& task) {
  const JobParams& params = job.params;
  if (params.force || task.key.empty() || params.record_target.empty()) return "";
  return absl::StrCat(task.key, "\n", params.record_target);
}

// Whether records of the one are known records of the other, in one group.
bool Partners(const Job& a, const Job& b) {
  return !a.params.device_key.empty() && a.params.device_key == b.params.device_key;
}

// Whether they are or may become partners: a job without a device key may get any.
bool MayBePartners(const Job& a, const Job& b) {
  return a.params.device_key.empty() || b.params.device_key.empty() ||
         a.params.device_key == b.params.device_key;
}

}  // namespace

template <typename F>
void Dispatcher::ForPartners(const Job& job, TaskIndex index, F f) {
  const auto group = groups_.find(GroupOf(job, job.tasks[index.value]));
  if (group == groups_.end()) return;
  for (const auto& [id, task] : group->second.tasks) {
    if (id == job.id && task == index) continue;
    if (Job& other = jobs_.at(id); Partners(job, other)) f(other, task);
  }
}

void Dispatcher::EnterGroups(const Job& job) {
  if (!Is<Tuning>(job.phase)) return;
  for (size_t i = 0; i < job.tasks.size(); ++i) {
    const std::string group = GroupOf(job, job.tasks[i]);
    if (group.empty() || Is<Finished>(job.tasks[i].phase)) continue;
    groups_[group].tasks.insert({job.id, TaskIndex{static_cast<int>(i)}});
  }
}

void Dispatcher::TakeKnown(Job& job, TaskIndex index, const TaskPlan& known) {
  Task& task = job.tasks[index.value];
  task.known = known.known;
  task.known_valid = known.known_valid;
  task.best_ns = task.known_best_ns = known.known_best_ns;
  Emit(TaskChanged{job.id, index});
  if (Is<Finished>(task.phase)) return;
  task.behind = true;
  task.curve.clear();
  if (task.known_best_ns > 0) task.curve = {{task.known, task.known_best_ns}};
  // A round may have been granted before there was a device, and may be proposed just now.
  const int granted =
      job.params.allocation == Allocation::kGradient
          ? std::min(task.budget, GradientCap(job.params.trials_per_task) - task.known)
          : 0;
  task.budget = std::max(granted, Allowance(job, task));
}

// What partners know and have measured is known to the newcomer, be it on disk yet or not. What it
// has tried itself failed to build, before it had a device: now that is known to them.
void Dispatcher::JoinGroups(Job& job) {
  EnterGroups(job);
  for (size_t i = 0; i < job.tasks.size(); ++i) {
    const Task& task = job.tasks[i];
    const TaskIndex index{static_cast<int>(i)};
    if (Is<Finished>(task.phase)) continue;
    ForPartners(job, index, [&](const Job& other, TaskIndex at) {
      const Task& partner = other.tasks[at.value];
      if (other.id == job.id || partner.known + partner.trials <= task.known) return;
      TakeKnown(
          job, index,
          {partner.known + partner.trials, partner.known_valid + partner.valid(), partner.best_ns});
    });
  }
  for (size_t i = 0; i < job.tasks.size(); ++i) {
    if (Is<Finished>(job.tasks[i].phase)) continue;
    for (int trial = 0; trial < job.tasks[i].trials; ++trial)
      ShareTrial(job, TaskIndex{static_cast<int>(i)}, false, 0);
  }
}

void Dispatcher::On(const RecordsFound& event) {
  auto it = jobs_.find(event.job);
  if (it == jobs_.end() || it->second.final() || !it->second.finding) return;
  Job& job = it->second;
  job.finding = false;
  JobParams pinned = job.params;
  pinned.device_key = event.device_key;
  const int lane = slot_index_.DeviceLane(pinned);
  if (slot_index_.Count(lane) == 0) return;  // it has left meanwhile: the next one is asked about
  job.params.device_key = event.device_key;
  job.lane = lane;
  for (size_t i = 0; i < std::min(job.tasks.size(), event.tasks.size()); ++i) {
    if (!job.params.force && event.tasks[i].known > job.tasks[i].known)
      TakeKnown(job, TaskIndex{static_cast<int>(i)}, event.tasks[i]);
  }
  JoinGroups(job);
  TouchGroups(job);  // whose partner it has not become waits for it no more
  Emit(JobChanged{job.id});
}

void Dispatcher::LeaveGroup(Job& job, TaskIndex index) {
  const auto group = groups_.find(GroupOf(job, job.tasks[index.value]));
  if (group == groups_.end()) return;
  TouchGroup(job, index);
  group->second.tasks.erase({job.id, index});
  if (group->second.tasks.empty()) groups_.erase(group);
}

void Dispatcher::LeaveGroups(Job& job) {
  for (size_t i = 0; i < job.tasks.size(); ++i) LeaveGroup(job, TaskIndex{static_cast<int>(i)});
}

void Dispatcher::TouchGroup(const Job& job, TaskIndex index) {
  const auto group = groups_.find(GroupOf(job, job.tasks[index.value]));
  if (group == groups_.end()) return;
  for (const auto& [id, task] : group->second.tasks) {
    if (id != job.id && MayBePartners(job, jobs_.at(id))) Touch(id);
  }
}

void Dispatcher::TouchGroups(const Job& job) {
  for (const Task& task : job.tasks) {
    const auto group = groups_.find(GroupOf(job, task));
    if (group == groups_.end()) continue;
    for (const auto& [other, index] : group->second.tasks) {
      if (other != job.id) Touch(other);
    }
  }
}

bool Dispatcher::PartnerInFlight(const Job& job, TaskIndex index) const {
  const auto found = groups_.find(GroupOf(job, job.tasks[index.value]));
  if (found == groups_.end()) return false;
  const Group& group = found->second;
  auto blocks = [&](const std::pair<JobId, TaskIndex>& member) {
    const Job& other = jobs_.at(member.first);
    return member != std::pair{job.id, index} && !other.paused && MayBePartners(job, other) &&
           InFlight(other.tasks[member.second.value]);
  };
  if (group.tasks.count(group.latest) > 0 && blocks(group.latest)) return true;
  return std::any_of(group.tasks.begin(), group.tasks.end(), blocks);
}

// Counted in the same step as the trial itself, so that both are durable or neither is.
void Dispatcher::ShareTrial(Job& job, TaskIndex index, bool valid, double median_ns) {
  ForPartners(job, index, [&](Job& other, TaskIndex at) {
    Task& partner = other.tasks[at.value];
    ++partner.known;
    partner.behind = true;
    if (valid) {
      ++partner.known_valid;
      if (partner.best_ns <= 0 || median_ns < partner.best_ns) partner.best_ns = median_ns;
      if (partner.known_best_ns <= 0 || median_ns < partner.known_best_ns)
        partner.known_best_ns = median_ns;
      AddToCurve(&partner,
                 partner.known + partner.trials - static_cast<int>(partner.results.size()),
                 median_ns);
    }
    if (other.params.allocation == Allocation::kUniform) partner.budget = Allowance(other, partner);
    // Its forecast is renewed once a round; what the trial may end, at once.
    decisions_.changes.emplace_back(TaskChanged{other.id, at});
    if (partner.known % std::max(1, other.params.batch) == 0) {
      Touch(other.id);
    } else {
      told_.insert(other.id);
    }
  });
}

void Dispatcher::CatchUp(Job& job, TaskIndex index) {
  Task& task = job.tasks[index.value];
  if (const auto group = groups_.find(GroupOf(job, task)); group != groups_.end())
    group->second.latest = {job.id, index};
  if (!task.behind && !task.warm_pending) return;
  const Job* source = nullptr;
  TaskIndex from;
  ForPartners(job, index, [&](const Job& other, TaskIndex at) {
    const Task& partner = other.tasks[at.value];
    const bool learned = Is<Waiting>(partner.phase) && partner.trials > 0 && !partner.behind &&
                         !partner.unlearned && !partner.warm_pending;
    if (source == nullptr && learned && other.params.strategy == job.params.strategy)
      source = &other, from = at;
  });
  task.warm_pending = source == nullptr;
  task.behind = false;
  if (source != nullptr) {
    task.unlearned = false;  // the partner has learned this task's results as well
    Emit(TakeSearch{job.id, index, source->id, from});
  }
  Emit(TaskChanged{job.id, index});
}

}  // namespace heddle::scheduler
