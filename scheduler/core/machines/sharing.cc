#include "scheduler/core/machines/sharing.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "scheduler/core/machines/trial_budget.h"

namespace heddle::scheduler {
namespace {

// The key of the task's workload; empty if the task shares with nobody.
std::string WorkloadOf(const Job& job, const Task& task) {
  const JobParams& params = job.params;
  if (params.force || task.key.empty() || params.record_target.empty()) return "";
  return absl::StrCat(task.key, "\n", params.record_target);
}

// Whether tasks of the same workload are partners in these jobs.
bool ArePartners(const Job& a, const Job& b) {
  return !a.params.device_key.empty() && a.params.device_key == b.params.device_key;
}

// Whether they are partners or may become partners: a job without a device key may get any.
bool MayBePartners(const Job& a, const Job& b) {
  return a.params.device_key.empty() || b.params.device_key.empty() ||
         a.params.device_key == b.params.device_key;
}

}  // namespace

const Sharing::Workload* Sharing::Find(const Job& job, TaskIndex task) const {
  const auto found = workloads_.find(WorkloadOf(job, job.tasks[task.value]));
  return found == workloads_.end() ? nullptr : &found->second;
}

Sharing::Workload* Sharing::Find(const Job& job, TaskIndex task) {
  return const_cast<Workload*>(std::as_const(*this).Find(job, task));
}

template <typename F>
void Sharing::ForPartners(const Job& job, TaskIndex index, F f) {
  const Workload* workload = Find(job, index);
  if (workload == nullptr) return;
  for (const auto& [id, task] : workload->tasks) {
    if (id == job.id && task == index) continue;
    if (Job& other = jobs_->at(id); ArePartners(job, other)) f(other, task);
  }
}

void Sharing::Enter(const Job& job, size_t first) {
  if (!Is<Tuning>(job.phase) && !Is<Planning>(job.phase) && !Judging(job)) return;
  for (size_t i = first; i < job.tasks.size(); ++i) {
    const std::string workload = WorkloadOf(job, job.tasks[i]);
    if (workload.empty() || Is<Finished>(job.tasks[i].phase)) continue;
    const Member member{job.id, TaskIndex{static_cast<int>(i)}};
    Workload& known = workloads_[workload];
    known.tasks.insert(member);
    if (InFlight(job.tasks[i])) known.begun.insert(member);
  }
}

void Sharing::Join(Job& job, size_t first) {
  Enter(job, first);
  for (size_t i = first; i < job.tasks.size(); ++i) {
    const Task& task = job.tasks[i];
    const TaskIndex index{static_cast<int>(i)};
    if (Is<Finished>(task.phase)) continue;
    ForPartners(job, index, [&](const Job& other, TaskIndex at) {
      const Task& partner = other.tasks[at.value];
      if (other.id == job.id || partner.known.total + partner.trials <= task.known.total) return;
      TakeKnown(job, index,
                {partner.known.total + partner.trials, partner.known.valid + partner.valid(),
                 partner.best_ns});
    });
  }
  for (size_t i = first; i < job.tasks.size(); ++i) {
    if (Is<Finished>(job.tasks[i].phase)) continue;
    for (int trial = 0; trial < job.tasks[i].trials; ++trial)
      ShareTrial(job, TaskIndex{static_cast<int>(i)}, false, 0);
  }
}

void Sharing::Leave(const Job& job, TaskIndex task) {
  Workload* workload = Find(job, task);
  if (workload == nullptr) return;
  TouchPartners(job, task);
  workload->tasks.erase({job.id, task});
  workload->begun.erase({job.id, task});
  if (workload->tasks.empty()) workloads_.erase(WorkloadOf(job, job.tasks[task.value]));
}

void Sharing::Leave(const Job& job) {
  for (size_t i = 0; i < job.tasks.size(); ++i) Leave(job, TaskIndex{static_cast<int>(i)});
}

void Sharing::TakeKnown(Job& job, TaskIndex index, const KnownRecords& known) {
  Task& task = job.tasks[index.value];
  task.known = known;
  task.best_ns = known.best_ns;
  effects_->Emit(TaskChanged{job.id, index});
  if (Is<Finished>(task.phase)) {
    task.budget = std::min(task.budget, Allowance(job, task));
    return;
  }
  task.unlearned.others = true;
  task.curve.clear();
  AddToCurve(&task, known.total, known.best_ns);
  // The task may have been granted a round before there was a device, and may be proposing it now.
  const int granted =
      IsGradient(job) ? std::min(task.budget, GradientCap(job.params.trials_per_task) - known.total)
                      : 0;
  task.budget = std::max(granted, Allowance(job, task));
}

// The partners count the trial in the same step as the job itself, so that both are durable or
// neither is.
void Sharing::ShareTrial(const Job& job, TaskIndex index, bool valid, double median_ns) {
  ForPartners(job, index, [&](Job& other, TaskIndex at) {
    Task& partner = other.tasks[at.value];
    ++partner.known.total;
    partner.unlearned.others = true;
    if (valid) {
      ++partner.known.valid;
      if (partner.best_ns <= 0 || median_ns < partner.best_ns) partner.best_ns = median_ns;
      if (partner.known.best_ns <= 0 || median_ns < partner.known.best_ns)
        partner.known.best_ns = median_ns;
      AddToCurve(&partner,
                 partner.known.total + partner.trials - static_cast<int>(partner.results.size()),
                 median_ns);
    }
    if (!IsGradient(other)) partner.budget = Allowance(other, partner);
    // The other job's forecast is updated once a round.
    effects_->EmitShared(TaskChanged{other.id, at});
    if (partner.known.total % std::max(1, other.params.batch) == 0) effects_->Touch(other.id);
  });
}

void Sharing::CatchUp(Job& job, TaskIndex index) {
  Task& task = job.tasks[index.value];
  if (Workload* workload = Find(job, index);
      workload != nullptr && workload->tasks.contains({job.id, index}))
    workload->begun.insert({job.id, index});
  if (!task.unlearned.others && !task.unlearned.known) return;
  const Job* source = nullptr;
  TaskIndex from;
  ForPartners(job, index, [&](const Job& other, TaskIndex at) {
    const Task& partner = other.tasks[at.value];
    const bool learned =
        Is<Waiting>(partner.phase) && partner.trials > 0 && !partner.unlearned.any();
    if (source == nullptr && learned && other.params.strategy == job.params.strategy)
      source = &other, from = at;
  });
  task.unlearned.known = source == nullptr;
  task.unlearned.others = false;
  if (source != nullptr) {
    task.unlearned.own = false;  // the partner has learned this task's results as well
    effects_->Emit(TakeSearch{job.id, index, source->id, from});
  }
  effects_->Emit(TaskChanged{job.id, index});
}

bool Sharing::PartnerInFlight(const Job& job, TaskIndex index) const {
  const Workload* workload = Find(job, index);
  if (workload == nullptr) return false;
  return std::any_of(workload->begun.begin(), workload->begun.end(), [&](const Member& member) {
    const Job& other = jobs_->at(member.first);
    return member != std::pair{job.id, index} && !other.paused && MayBePartners(job, other);
  });
}

void Sharing::EndRounds(const Job& job, TaskIndex index) {
  if (Workload* workload = Find(job, index)) workload->begun.erase({job.id, index});
  TouchPartners(job, index);
}

void Sharing::TouchPartners(const Job& job, TaskIndex index) {
  const Workload* workload = Find(job, index);
  if (workload == nullptr) return;
  for (const auto& [id, task] : workload->tasks) {
    if (id != job.id && MayBePartners(job, jobs_->at(id))) effects_->Touch(id);
  }
}

void Sharing::TouchAll(const Job& job) {
  for (size_t i = 0; i < job.tasks.size(); ++i) {
    const Workload* workload = Find(job, TaskIndex{static_cast<int>(i)});
    if (workload == nullptr) continue;
    for (const auto& [other, index] : workload->tasks) {
      if (other != job.id) effects_->Touch(other);
    }
  }
}

}  // namespace heddle::scheduler
