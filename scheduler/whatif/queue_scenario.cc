#include "scheduler/whatif/queue_scenario.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/vocabulary/job_limits.h"
#include "base/vocabulary/target.h"
#include "proto/job_states.h"
#include "scheduler/core/duration_model.h"
#include "scheduler/core/slot_index.h"
#include "scheduler/store/record_store.h"

namespace heddle::scheduler {
namespace {

constexpr double kLate = 1;  // seconds left of a deadline or a time limit that is over

bool OfCandidates(v1::StageKind kind) {
  return kind == v1::STAGE_BUILD || kind == v1::STAGE_PROFILE;
}

DurationModel::Where At(const std::string& job, const std::string& task, v1::StageKind kind) {
  return {.job = JobId{ParseJobName(job)},
          .task = task.empty() ? 0 : DurationModel::TaskId(task),
          .kind = kind};
}

DurationModel Learn(const WhatIfQuestion& question) {
  DurationModel model;
  // A profile stage also waits for builds, so the time of a trial is better known from its record.
  bool builds_known = false, trials_known = false;
  for (auto record = question.records.rbegin(); record != question.records.rend(); ++record) {
    const v1::Measurement& measured = record->measurement();
    if (record->job().empty()) continue;
    for (const auto& [kind, ns, known] :
         {std::tuple{v1::STAGE_BUILD, measured.build_ns(), &builds_known},
          std::tuple{v1::STAGE_PROFILE, measured.profile_ns(), &trials_known}}) {
      if (ns <= 0) continue;
      model.Observe(At(record->job(), record->workload_key(), kind), absl::Nanoseconds(ns));
      *known = true;
    }
  }
  for (const v1::StageSpan& span : question.stages) {
    if (span.end_unix_ns() <= span.start_unix_ns() || span.has_fault()) continue;
    if (span.kind() == v1::STAGE_BUILD && builds_known) continue;
    if (span.kind() == v1::STAGE_PROFILE && trials_known) continue;
    if (OfCandidates(span.kind()) && span.candidates() == 0) continue;
    const int units = OfCandidates(span.kind()) ? span.candidates() : 1;
    model.Observe(At(span.job(), span.task(), span.kind()),
                  absl::Nanoseconds(span.end_unix_ns() - span.start_unix_ns()) / units);
  }
  return model;
}

std::vector<sim::SimSlot> SlotsOf(const v1::ListWorkersResponse& machines) {
  std::vector<sim::SimSlot> slots;
  for (const v1::WorkerStatus& worker : machines.workers()) {
    for (const v1::SlotStatus& status : worker.slots()) {
      if (status.state() == v1::SLOT_DRAINING || status.state() == v1::SLOT_QUARANTINED ||
          !status.retires().empty())
        continue;
      const v1::Slot& slot = status.slot();
      sim::SimSlot& made = slots.emplace_back();
      made.info.id = {worker.worker(), slot.name()};
      made.info.host = worker.host().empty() ? worker.worker() : worker.host();
      made.info.device = slot.kind() == v1::SLOT_DEVICE;
      made.info.cores.assign(slot.cores().begin(), slot.cores().end());
      made.info.device_key = slot.device_key();
      made.info.target = slot.target();
      made.info.builds.assign(slot.builds().begin(), slot.builds().end());
    }
  }
  return slots;
}

// Trials that each task has still to make, by index.
std::vector<int64_t> TrialsLeft(const v1::Job& job) {
  std::vector<int64_t> left(static_cast<size_t>(job.tasks_size()));
  if (job.state() == v1::JOB_COMPILING || job.state() == v1::JOB_COMPARING) return left;
  int64_t sum = 0, open = 0;
  const auto takes_more = [](const v1::TaskStatus& task) {
    return !task.done() && task.info().weight() > 0;
  };
  for (int i = 0; i < job.tasks_size(); ++i) {
    const v1::TaskStatus& task = job.tasks(i);
    if (task.done()) continue;
    left[static_cast<size_t>(i)] = std::max(0, task.budget() - task.trials());
    sum += left[static_cast<size_t>(i)];
    open += takes_more(task);
  }
  // Those that are granted to no task yet go to all alike.
  const int64_t rest = job.trials_budget() - job.trials() - sum;
  if (rest <= 0 || open == 0) return left;
  int64_t nth = 0;
  for (int i = 0; i < job.tasks_size(); ++i) {
    if (!takes_more(job.tasks(i))) continue;
    left[static_cast<size_t>(i)] += rest / open + (nth++ < rest % open ? 1 : 0);
  }
  return left;
}

double Seconds(const DurationModel& model, const v1::Job& job, const std::string& task,
               v1::StageKind kind) {
  return absl::ToDoubleSeconds(model.Predict(At(job.id(), task, kind)));
}

void SetTime(sim::StageTimes* times, v1::StageKind kind, double seconds) {
  sim::StageTime& time = (*times)[static_cast<size_t>(kind)];
  time.seconds.kind = sim::Distribution::kConstant;
  time.seconds.a = seconds;
  time.per_candidate = OfCandidates(kind);
}

// Nothing is left of it but that the simulator has a task to begin with.
sim::SimTask NoTask() {
  sim::SimTask task;
  task.candidates = 1;
  for (const v1::StageKind kind :
       {v1::STAGE_PROPOSE, v1::STAGE_BUILD, v1::STAGE_PROFILE, v1::STAGE_UPDATE})
    SetTime(&task.times, kind, 0);
  return task;
}

sim::SimJob MakeJob(const v1::Job& job, const DeviceNeeds& needs, const DurationModel& model,
                    int trials_as_one, int64_t now_unix_ns) {
  const v1::JobSpec& spec = job.spec();
  sim::SimJob made;
  made.name = job.id();
  made.user = spec.user();
  made.priority = spec.priority();
  if (spec.deadline_unix_ns() > 0)
    made.deadline =
        std::max(kLate, static_cast<double>(spec.deadline_unix_ns() - now_unix_ns) / 1e9);
  if (spec.time_limit_ms() > 0)
    made.time_limit =
        std::max(kLate, static_cast<double>(spec.time_limit_ms() - job.tuning_ms()) / 1e3);
  const int batch = spec.batch() > 0 ? spec.batch() : kDefaultBatch;
  made.batch = std::max(1, batch / trials_as_one);
  made.pipeline_depth = spec.pipeline_depth();
  made.max_devices = spec.max_devices();
  made.gradient = false;
  made.force = true;  // known records are in the numbers of trials already
  made.target = needs.target;
  made.threads = needs.cores;
  made.device_key = spec.device_key();
  made.comparisons = spec.no_comparison() ? 0 : 1;
  SetTime(&made.times, v1::STAGE_IMPORT, 0);  // it is done
  SetTime(&made.times, v1::STAGE_COMPILE,
          job.state() == v1::JOB_COMPARING ? 0 : Seconds(model, job, "", v1::STAGE_COMPILE));
  SetTime(&made.times, v1::STAGE_COMPARE, Seconds(model, job, "", v1::STAGE_COMPARE));
  made.trials = 1;
  const std::vector<int64_t> left = TrialsLeft(job);
  for (int i = 0; i < job.tasks_size(); ++i) {
    const int64_t trials = left[static_cast<size_t>(i)];
    if (trials == 0) continue;
    const v1::TaskInfo& info = job.tasks(i).info();
    sim::SimTask task;
    task.weight = std::max(1, info.weight());
    task.flops = info.flops();
    task.candidates = static_cast<int>((trials + trials_as_one - 1) / trials_as_one);
    // What is simulated takes as long, in all, as what it stands for.
    const double candidates = static_cast<double>(trials) / task.candidates;
    const double rounds = std::ceil(static_cast<double>(trials) / batch) /
                          std::ceil(static_cast<double>(task.candidates) / made.batch);
    for (const v1::StageKind kind :
         {v1::STAGE_PROPOSE, v1::STAGE_BUILD, v1::STAGE_PROFILE, v1::STAGE_UPDATE}) {
      SetTime(&task.times, kind,
              Seconds(model, job, info.key(), kind) * (OfCandidates(kind) ? candidates : rounds));
    }
    made.trials = std::max(made.trials, task.candidates);
    made.tasks.push_back(std::move(task));
  }
  if (made.tasks.empty()) made.tasks.push_back(NoTask());
  return made;
}

// Whether slots are there for the job's builds and its trials.
bool Suited(const std::vector<sim::SimSlot>& slots, const v1::JobSpec& spec,
            const DeviceNeeds& needs) {
  JobParams params;
  params.target = needs.target;
  params.threads = needs.cores;
  params.device_key = spec.device_key();
  const auto any = [&](v1::StageKind kind) {
    return std::any_of(slots.begin(), slots.end(), [&](const sim::SimSlot& slot) {
      return SlotIndex::Suits(slot.info, kind, params);
    });
  };
  return any(v1::STAGE_BUILD) && any(v1::STAGE_PROFILE);
}

}  // namespace

absl::StatusOr<QueueScenario> ScenarioOf(const WhatIfQuestion& question) {
  QueueScenario made;
  made.scenario.name = "the queue";
  made.scenario.policy = question.policy;
  made.scenario.slots = SlotsOf(question.machines);
  if (made.scenario.slots.empty())
    return absl::FailedPreconditionError("no slot is usable now, so nothing can be simulated");
  int importing = 0, paused = 0, without_slots = 0, others = 0;
  int64_t trials = 0;
  std::vector<DeviceNeeds> needs_of;
  for (const std::shared_ptr<const v1::Job>& job : question.unfinished) {
    if (IsFinal(job->state())) continue;
    const auto target = ParseTarget(job->spec().target());
    const std::optional<DeviceNeeds> needs =
        target.ok() ? std::optional(NeedsOf(*target)) : std::nullopt;
    if (job->state() == v1::JOB_PAUSED) {
      ++paused;
    } else if (job->tasks_size() == 0) {
      ++importing;
    } else if (!needs || !Suited(made.scenario.slots, job->spec(), *needs)) {
      ++without_slots;
    } else if (made.jobs.size() == static_cast<size_t>(kMostSimulatedJobs)) {
      ++others;
    } else {
      for (const int64_t left : TrialsLeft(*job)) trials += left;
      made.jobs.push_back(job);
      needs_of.push_back(*needs);
    }
  }
  const auto leave_out = [&](int count, const char* why) {
    if (count > 0) made.left_out.push_back(absl::StrCat(count, why));
  };
  leave_out(importing, " not imported yet, so their tasks are not known");
  leave_out(paused, " paused");
  leave_out(without_slots, " that no usable slot suits");
  leave_out(others, " that came later");
  if (made.jobs.empty())
    return absl::FailedPreconditionError(
        "no job is there that could go on, so nothing is simulated");
  made.trials_as_one = static_cast<int>(
      std::max<int64_t>(1, (trials + kMostSimulatedTrials - 1) / kMostSimulatedTrials));
  const DurationModel model = Learn(question);
  for (size_t i = 0; i < made.jobs.size(); ++i) {
    made.scenario.jobs.push_back(
        MakeJob(*made.jobs[i], needs_of[i], model, made.trials_as_one, question.now_unix_ns));
  }
  return made;
}

}  // namespace heddle::scheduler
