// What users see of a job.
#include <algorithm>

#include "scheduler/core/machines/trial_budget.h"
#include "scheduler/ledger/job_ledger.h"
#include "scheduler/ledger/why_waiting.h"

namespace heddle::scheduler {

v1::JobState StateOf(const Job& job) {
  struct Visitor {
    v1::JobState operator()(const Importing&) { return v1::JOB_IMPORTING; }
    v1::JobState operator()(const Tuning&) { return v1::JOB_TUNING; }
    v1::JobState operator()(const Planning&) { return v1::JOB_PLANNING; }
    v1::JobState operator()(const Compiling&) { return v1::JOB_COMPILING; }
    v1::JobState operator()(const Comparing&) { return v1::JOB_COMPARING; }
    v1::JobState operator()(const Done&) { return v1::JOB_DONE; }
    v1::JobState operator()(const Failed&) { return v1::JOB_FAILED; }
    v1::JobState operator()(const Cancelled&) { return v1::JOB_CANCELLED; }
  };
  return std::visit(Visitor{}, job.phase);
}

void JobLedger::FillTask(const Dispatcher& dispatcher, const Job& job, int index, absl::Time now,
                         v1::TaskStatus* out) const {
  const Task& task = job.tasks[static_cast<size_t>(index)];
  const TaskData& data = jobs_.at(job.id).tasks[static_cast<size_t>(index)];
  *out->mutable_info() = data.row.info;
  out->mutable_info()->clear_workload();
  out->set_done(std::holds_alternative<Finished>(task.phase));
  out->set_trials(task.trials);
  out->set_failed(task.failed);
  // The trials of a finished task are its budget: a small space may hold fewer candidates than
  // were asked for.
  out->set_budget(out->done() ? task.trials : task.budget);
  out->set_known_records(task.known.valid);
  out->set_best_ns(Faster(data.best_ns, task.known.best_ns));
  out->set_untuned_ns(data.untuned_ns != 0 ? data.untuned_ns : data.row.known.untuned_ns);
  out->set_doing(DescribeTask(dispatcher, job, TaskIndex{index}, now));
  out->set_first_error(task.first_error);
  out->set_keeps_default(task.keep_default);
  const v1::Comparison& comparison = jobs_.at(job.id).row.job.comparison();
  for (const auto* found : {&comparison.result().tasks(), &comparison.taken_back()}) {
    for (const v1::CompareResult::Task& compared : *found) {
      if (compared.workload_key() == data.row.info.key()) *out->mutable_compared() = compared;
    }
  }
}

v1::Job JobLedger::View(const Dispatcher& dispatcher, JobId id, absl::Time now) const {
  const Job& job = *dispatcher.FindJob(id);
  const JobData& data = jobs_.at(id);
  v1::Job view = data.row.job;
  view.set_state(job.paused ? v1::JOB_PAUSED : StateOf(job));
  view.set_reason(DescribeJob(dispatcher, job, now));
  int trials = 0, budget = 0, remaining = 0;
  bool remaining_tasks = false;
  for (int i = 0; i < static_cast<int>(job.tasks.size()); ++i) {
    const Task& task = job.tasks[static_cast<size_t>(i)];
    v1::TaskStatus* status = view.add_tasks();
    FillTask(dispatcher, job, i, now, status);
    trials += task.trials;
    budget += status->budget();
    if (std::holds_alternative<Finished>(task.phase)) continue;
    remaining += task.remaining();
    remaining_tasks = true;
  }
  if (job.params.allocation == Allocation::kGradient && remaining_tasks) {
    budget = std::max(trials, TrialBudget(job, dispatcher.options()));
    remaining = budget - trials;
  }
  view.set_trials(trials);
  view.set_trials_budget(budget);
  const int done_here = trials - data.trials_before;
  const bool deadline = job.params.deadline != absl::InfiniteFuture();
  if (std::holds_alternative<Tuning>(job.phase) && !job.paused && (deadline || done_here > 0)) {
    // With a deadline: the estimate behind its warning. Without: the pace so far.
    const absl::Duration limit = job.params.time_limit - Tuned(job, now);
    const absl::Duration eta =
        deadline ? dispatcher.EstimatedEnd(id) - now
                 : std::min(limit, (now - data.tuning_since) * remaining / done_here);
    if (eta != absl::InfiniteDuration())
      view.set_eta_ms(absl::ToInt64Milliseconds(std::max(absl::ZeroDuration(), eta)));
  }
  view.set_running_ms(absl::ToInt64Milliseconds(data.Busy(now)));
  return view;
}

}  // namespace heddle::scheduler
