#include "scheduler/ledger/job_ledger.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "scheduler/ledger/why_waiting.h"

namespace heddle::scheduler {
namespace {

constexpr int kMaxWarnings = 100;  // of one job; more would hide the first

JobPhase PhaseOf(const JobRow& row) {
  switch (row.job.state()) {
    case v1::JOB_TUNING:
      return Tuning{};
    case v1::JOB_COMPILING:
      return Compiling{};
    case v1::JOB_DONE:
      return Done{};
    case v1::JOB_FAILED:
      return Failed{{row.job.fault().kind(), row.job.fault().message()}};
    case v1::JOB_CANCELLED:
      return Cancelled{row.job.reason()};
    default:
      return Importing{};
  }
}

KnownRecords KnownOf(const TaskPlan& plan) {
  return {plan.known, plan.known_valid, plan.known_best_ns, plan.known_untuned_ns};
}

// The result of the stage whose end the event is; null: the event is none, or of another kind.
template <typename Result>
const Result* ResultOf(const Event& event) {
  const auto* end = std::get_if<StageFinished>(&event);
  return end == nullptr ? nullptr : std::get_if<Result>(&end->result);
}

// What the event says was measured of a candidate; null: nothing.
const Measured* MeasuredOf(const Event& event) {
  return std::visit(
      [](const auto& e) -> const Measured* {
        if constexpr (requires { e.measured; }) return e.measured.get();
        return nullptr;
      },
      event);
}

}  // namespace

// ---- from events to rows ----

void JobLedger::TakeIn(const Dispatcher& dispatcher, const Event& event) {
  if (const auto* submitted = std::get_if<JobSubmitted>(&event)) {
    JobRow& row = jobs_[submitted->job].row;
    row.id = submitted->job.value;
    row.job = submitted->description;
  } else if (const auto* built = std::get_if<CandidateBuilt>(&event)) {
    auto stage = dispatcher.live().find(built->attempt);
    if (stage == dispatcher.live().end()) return;
    auto candidate = jobs_.at(stage->second.job).candidates.find(built->candidate);
    if (candidate == jobs_.at(stage->second.job).candidates.end() || candidate->second.outcome)
      return;
    candidate->second.artifact = built->artifact;
    candidate->second.build_ns = built->build_ns;
  } else if (const auto* found = std::get_if<RecordsFound>(&event)) {
    std::vector<TaskData>& tasks = jobs_.at(found->job).tasks;
    for (size_t i = 0; i < std::min(tasks.size(), found->tasks.size()); ++i)
      tasks[i].known = KnownOf(found->tasks[i]);
  }
}

void JobLedger::AddWarnings(JobId id, const std::vector<std::string>& warnings) {
  v1::Job& row = jobs_.at(id).row.job;
  for (const std::string& warning : warnings) {
    const bool there =
        std::find(row.warnings().begin(), row.warnings().end(), warning) != row.warnings().end();
    if (!there && row.warnings_size() < kMaxWarnings) row.add_warnings(warning);
  }
}

void JobLedger::SetDeadlineWarning(JobId id, const std::string& warning) {
  auto& warnings = *jobs_.at(id).row.job.mutable_warnings();
  warnings.erase(
      std::remove_if(warnings.begin(), warnings.end(),
                     [](const std::string& old) { return old.starts_with(kDeadlineWarning); }),
      warnings.end());
  if (!warning.empty()) AddWarnings(id, {warning});
}

// Of a stage whose result is taken. One that learned from less than the model that is there is
// dropped.
void JobLedger::KeepFitted(const FittedModel& fitted, absl::Time wall, Batch* batch) {
  PutTransferModel put{fitted.id, fitted.model};
  put.model.set_made_unix_ns(absl::ToUnixNanos(wall));
  // What it learned from was gathered when its stage began (FillSearch).
  put.model.set_since(transfer_models_.counted(put.id.device_key) - put.model.since());
  const v1::TransferModel* kept = transfer_models_.Find(put.id);
  if (kept != nullptr && put.model.since() > kept->since()) return;
  transfer_models_.Put(put.id, put.model);
  batch->push_back(std::move(put));
}

Batch JobLedger::Absorb(const Dispatcher& dispatcher, const Event& event,
                        const std::vector<Change>& changes, absl::Time now, absl::Time wall) {
  Batch batch;
  TakeIn(dispatcher, event);
  const auto* imported = ResultOf<Imported>(event);
  const auto* proposed = ResultOf<Proposed>(event);
  const auto* updated = ResultOf<Updated>(event);
  const auto* compiled = ResultOf<Compiled>(event);
  auto put_state = [&](JobId job, TaskIndex task, const std::string& state) {
    jobs_.at(job).tasks[static_cast<size_t>(task.value)].search_state = state;
    batch.push_back(PutSearchState{job.value, task.value, state});
  };
  for (const Change& change : changes) {
    if (const auto* add = std::get_if<AddCandidates>(&change)) {
      JobData& job = jobs_.at(add->job);
      if (proposed->fitted) KeepFitted(*proposed->fitted, wall, &batch);
      for (int i = 0; i < add->count; ++i) {
        const v1::Candidate& candidate = proposed->candidates[static_cast<size_t>(i)];
        const CandidateId id{add->first.value + i};
        job.candidates[id] = {add->task.value,
                              candidate.trace(),
                              candidate.origin(),
                              false,
                              std::nullopt,
                              0,
                              nullptr,
                              0};
        batch.push_back(InsertCandidate{
            {add->job.value, id.value, add->task.value, candidate.trace(), candidate.origin(), 0,
             false, std::nullopt, 0, "", 0,
             candidate.has_prediction() ? std::optional(candidate.prediction()) : std::nullopt}});
      }
      put_state(add->job, add->task, proposed->search_state);
    } else if (const auto* attempts = std::get_if<SetAttempts>(&change)) {
      batch.push_back(
          PutAttempts{attempts->job.value, attempts->candidate.value, attempts->attempts});
    } else if (const auto* done = std::get_if<FinishCandidate>(&change)) {
      InsertRecord made = MakeRecord(dispatcher, *done, MeasuredOf(event), wall);
      if (made.record.device_key().empty()) {
        jobs_.at(done->job).held.push_back(std::move(made));
      } else {
        batch.push_back(std::move(made));
      }
      ShareUntuned(*done);
    } else if (const auto* take = std::get_if<TakeSearch>(&change)) {
      put_state(
          take->job, take->task,
          jobs_.at(take->from_job).tasks[static_cast<size_t>(take->from_task.value)].search_state);
    } else if (const auto* learned = std::get_if<MarkLearned>(&change)) {
      int32_t results = 0;  // that are new to it
      for (auto& [id, candidate] : jobs_.at(learned->job).candidates) {
        if (id >= learned->before) break;
        if (candidate.task != learned->task.value || !candidate.outcome) continue;
        results += !candidate.learned && candidate.outcome != v1::OUTCOME_LOST;
        candidate.learned = true;
      }
      batch.push_back(LearnTask{learned->job.value, learned->task.value, learned->before.value});
      if (updated == nullptr) continue;  // the update was left out
      if (updated->fitted) KeepFitted(*updated->fitted, wall, &batch);
      put_state(learned->job, learned->task, updated->search_state);
      const JobData& job = jobs_.at(learned->job);
      const WorkloadId workload{job.tasks[static_cast<size_t>(learned->task.value)].info.key(),
                                job.row.job.spec().target(),
                                dispatcher.FindJob(learned->job)->params.device_key};
      // Without a device there are only failed builds, which are transfer samples of no device.
      const v1::TransferSamples transfer_samples =
          workload.device_key.empty() ? v1::TransferSamples() : updated->transfer_samples;
      transfer_samples_.Keep(workload, transfer_samples);
      transfer_models_.Count(workload.device_key, results);
      batch.push_back(PutLearned{learned->job.value, learned->task.value, updated->report, workload,
                                 transfer_samples, absl::ToUnixNanos(wall), results});
    } else if (const auto* changed = std::get_if<TaskChanged>(&change)) {
      JobData& job = jobs_.at(changed->job);
      if (job.tasks.empty() && imported != nullptr) {
        for (int i = 0; i < imported->model.tasks_size(); ++i) {
          job.tasks.push_back({imported->model.tasks(i), "",
                               KnownOf(imported->tasks[static_cast<size_t>(i)]), 0, 0});
        }
      }
      batch.push_back(PutTask{MakeTaskRow(dispatcher, changed->job, changed->task)});
    } else if (const auto* job_changed = std::get_if<JobChanged>(&change)) {
      JobData& job = jobs_.at(job_changed->job);
      if (imported != nullptr && imported->model.inputs_size() > 0 &&
          job.row.job.inputs().empty()) {
        *job.row.job.mutable_inputs() = imported->model.inputs();
        *job.row.job.mutable_outputs() = imported->model.outputs();
        job.tuning_since = now;
      }
      if (compiled != nullptr &&
          std::holds_alternative<Done>(dispatcher.FindJob(job_changed->job)->phase)) {
        job.row.job.set_module_digest(compiled->module_digest);
      }
      UpdateJobRow(dispatcher, job_changed->job, now, wall);
      batch.push_back(PutJob{job.row});
      ReleaseHeld(&job, &batch);
      if (dispatcher.FindJob(job_changed->job)->final()) Forget(&job, &batch);
    }
  }
  const auto* end = std::get_if<StageFinished>(&event);
  if ((proposed != nullptr || updated != nullptr) && !end->fence.slot.slot.empty() &&
      !batch.empty()) {
    batch.insert(batch.begin(), CheckFence{end->fence});
  }
  return batch;
}

// What nobody needs once a job is over. Search states are the bulk of a database.
void JobLedger::Forget(JobData* job, Batch* batch) {
  job->candidates.clear();
  job->held.clear();
  for (size_t i = 0; i < job->tasks.size(); ++i) {
    job->tasks[i].search_state.clear();
    batch->push_back(PutSearchState{job->row.id, static_cast<int32_t>(i), ""});
  }
}

// Once the job has a device key. The slots are left out: nothing was measured on them, and their
// fencing tokens may be past by now.
void JobLedger::ReleaseHeld(JobData* job, Batch* batch) {
  if (job->row.device_key.empty()) return;
  for (InsertRecord& held : job->held) {
    held.record.set_device_key(job->row.device_key);
    if (held.record.measurement().has_evidence())
      held.record.mutable_measurement()->mutable_evidence()->clear_slot();
    batch->push_back(std::move(held));
  }
  job->held.clear();
}

InsertRecord JobLedger::MakeRecord(const Dispatcher& dispatcher, const FinishCandidate& done,
                                   const Measured* measured, absl::Time wall) {
  JobData& job = jobs_.at(done.job);
  TaskData& task = job.tasks[static_cast<size_t>(done.task.value)];
  CandidateData& candidate = job.candidates.at(done.candidate);
  InsertRecord out;
  v1::Record& record = out.record;
  record.set_schema_version(1);
  record.set_workload_key(task.info.key());
  record.set_workload(task.info.workload());
  record.set_label(task.info.label());
  record.set_flops(task.info.flops());
  record.set_target(job.row.job.spec().target());
  record.set_device_key(dispatcher.FindJob(done.job)->params.device_key);
  record.set_trace(candidate.trace);
  record.set_created_unix_ns(absl::ToUnixNanos(wall));
  record.set_job(JobName(done.job.value));
  record.set_candidate(done.candidate.value);
  record.set_attempt(done.attempt);
  if (done.outcome != v1::OUTCOME_LOST && measured != nullptr) {
    *record.mutable_measurement() = measured->measurement;
    out.fencing_token = measured->fencing_token;
    if (record.measurement().build_ns() == 0)
      record.mutable_measurement()->set_build_ns(candidate.build_ns);
  }
  record.mutable_measurement()->set_outcome(done.outcome);
  if (done.outcome != v1::OUTCOME_OK) record.mutable_measurement()->set_message(done.message);
  const auto& samples = record.measurement().samples_ns();
  record.set_median_ns(done.outcome == v1::OUTCOME_OK ? Median({samples.begin(), samples.end()})
                                                      : 0);

  candidate.outcome = done.outcome;
  candidate.median_ns = record.median_ns();
  candidate.artifact = nullptr;
  task.best_ns = Faster(task.best_ns, record.median_ns());
  if (candidate.origin == "default") task.untuned_ns = Faster(task.untuned_ns, record.median_ns());
  return out;
}

// The default schedule's time, for the other live jobs that have the task on such a device: they do
// not measure it. With --force every job measures for itself.
void JobLedger::ShareUntuned(const FinishCandidate& done) {
  const JobData& job = jobs_.at(done.job);
  const CandidateData& candidate = job.candidates.at(done.candidate);
  if (candidate.origin != "default" || candidate.median_ns <= 0) return;
  if (job.row.job.spec().force()) return;
  const TaskData& task = job.tasks[static_cast<size_t>(done.task.value)];
  for (auto& [id, other] : jobs_) {
    if (id == done.job || other.row.job.finished_unix_ns() != 0 || other.row.job.spec().force() ||
        other.row.device_key != job.row.device_key ||
        other.row.job.spec().target() != job.row.job.spec().target())
      continue;
    for (TaskData& same : other.tasks) {
      if (same.info.key() == task.info.key())
        same.known.untuned_ns = Faster(same.known.untuned_ns, candidate.median_ns);
    }
  }
}

TaskRow JobLedger::MakeTaskRow(const Dispatcher& dispatcher, JobId id, TaskIndex index) const {
  const Task& task = dispatcher.FindJob(id)->tasks[static_cast<size_t>(index.value)];
  const TaskData& data = jobs_.at(id).tasks[static_cast<size_t>(index.value)];
  TaskRow row;
  row.job = id.value;
  row.index = index.value;
  row.info = data.info;
  row.budget = task.budget;
  row.known = task.known;
  row.known_valid = task.known_valid;
  row.done = std::holds_alternative<Finished>(task.phase);
  row.exhausted = task.exhausted;
  row.warm_pending = task.unlearned.known || task.unlearned.others;
  row.known_best_ns = task.known_best_ns;
  row.known_untuned_ns = data.known.untuned_ns;
  return row;
}

void JobLedger::UpdateJobRow(const Dispatcher& dispatcher, JobId id, absl::Time now,
                             absl::Time wall) {
  const Job& job = *dispatcher.FindJob(id);
  JobData& data = jobs_.at(id);
  v1::Job& row = data.row.job;
  row.set_state(StateOf(job));
  data.row.paused = job.paused;
  data.row.device_key = job.params.device_key;
  row.clear_fault();
  if (const auto* failed = std::get_if<Failed>(&job.phase)) {
    row.mutable_fault()->set_kind(failed->fault.kind);
    row.mutable_fault()->set_message(failed->fault.message);
  }
  const auto* cancelled = std::get_if<Cancelled>(&job.phase);
  row.set_reason(cancelled    ? cancelled->reason
                 : job.paused ? job.pause_reason
                              : DescribeJob(dispatcher, job, now));
  row.set_stop(job.stop);
  row.set_tuning_ms(absl::ToInt64Milliseconds(Tuned(job, now)));
  absl::Duration busy = data.busy;
  if (data.busy_since) busy += now - *data.busy_since;
  row.set_running_ms(absl::ToInt64Milliseconds(busy));
  if (job.final()) SetDeadlineWarning(id, "");
  if (job.final() && row.finished_unix_ns() == 0) row.set_finished_unix_ns(absl::ToUnixNanos(wall));
}

void JobLedger::CountBusy(JobId id, bool busy, absl::Time now) {
  JobData& data = jobs_.at(id);
  if (busy == data.busy_since.has_value()) return;
  if (busy) {
    data.busy_since = now;
  } else {
    data.busy += now - *data.busy_since;
    data.busy_since.reset();
  }
}

// ---- restart ----

void JobLedger::LoadTransferModels(const std::map<TransferModelId, v1::TransferModel>& stored) {
  for (const auto& [id, model] : stored) transfer_models_.Put(id, model);
}

Job JobLedger::Load(const StoredJob& stored, absl::Time now, absl::Time wall) {
  JobData& data = jobs_[JobId{stored.row.id}];
  data.row = stored.row;
  data.busy = absl::Milliseconds(stored.row.job.running_ms());
  Job job;
  job.id = JobId{stored.row.id};
  absl::StatusOr<JobParams> params = ParamsFrom(stored.row.job.spec(), now, wall);
  if (params.ok()) job.params = *params;
  job.params.device_key = stored.row.device_key;
  job.phase = PhaseOf(stored.row);
  job.paused = stored.row.paused;
  job.stop = stored.row.job.stop();
  job.tuned = absl::Milliseconds(stored.row.job.tuning_ms());
  if (job.paused) job.pause_reason = stored.row.job.reason();
  std::vector<bool> unlearned(stored.tasks.size(), false);
  // Of each task, from its first open one on.
  std::vector<std::vector<std::pair<CandidateId, bool>>> in_flight(stored.tasks.size());
  for (size_t i = 0; i < stored.tasks.size(); ++i) {
    const TaskRow& row = stored.tasks[i];
    data.tasks.push_back({row.info,
                          stored.states[i],
                          {row.known, row.known_valid, row.known_best_ns, row.known_untuned_ns},
                          0,
                          0});
    Task task;
    task.key = row.info.key();
    task.weight = std::max(1, row.info.weight());
    task.flops = row.info.flops();
    task.best_ns = task.known_best_ns = row.known_best_ns;
    task.budget = row.budget;
    task.known = row.known;
    task.known_valid = row.known_valid;
    task.exhausted = row.exhausted;
    task.unlearned.known = row.warm_pending;
    job.tasks.push_back(std::move(task));
  }
  for (const CandidateRow& row : stored.candidates) {
    const CandidateId id{row.id};
    job.next_candidate = std::max(job.next_candidate, row.id + 1);
    data.candidates[id] = {row.task,    row.trace,     row.origin, row.learned,
                           row.outcome, row.median_ns, nullptr,    0};
    Task& task = job.tasks[static_cast<size_t>(row.task)];
    if (!row.outcome || !task.open.empty())
      in_flight[static_cast<size_t>(row.task)].emplace_back(id, !row.outcome);
    if (!row.outcome) {
      task.open[id] = {row.attempts, Unbuilt{}};
      continue;
    }
    ++task.trials;
    task.results[id] = *row.outcome == v1::OUTCOME_OK ? row.median_ns : 0;
    task.device_ns += static_cast<double>(row.profile_ns);
    task.best_ns = Faster(task.best_ns, row.median_ns);
    ++data.trials_before;
    if (!row.learned && task.open.empty()) unlearned[static_cast<size_t>(row.task)] = true;
    TaskData& measured = data.tasks[static_cast<size_t>(row.task)];
    if (*row.outcome != v1::OUTCOME_OK) {
      ++task.failed;
      if (task.first_error.empty()) task.first_error = row.message;
      continue;
    }
    measured.best_ns = Faster(measured.best_ns, row.median_ns);
    if (row.origin == "default") measured.untuned_ns = Faster(measured.untuned_ns, row.median_ns);
  }
  for (size_t i = 0; i < job.tasks.size(); ++i) {
    Task& task = job.tasks[i];
    AddToCurve(&task, task.known, task.known_best_ns);
    FoldResults(&task, task.open.empty() ? std::nullopt : std::optional(task.open.begin()->first));
    task.unlearned.own = unlearned[i];
    const bool ahead = job.params.pipeline_depth > 1;
    task.rounds = MakeRounds(in_flight[i], job.params.batch, ahead);
    if (stored.tasks[i].done) {
      task.phase = Finished{};
    } else if (!task.open.empty() && !(ahead && unlearned[i])) {
      task.phase = Measuring{};
    } else if (unlearned[i]) {
      task.phase = WantsUpdate{};
    }
  }
  data.tuning_since = now;
  if (job.final()) data.candidates.clear();
  return job;
}

}  // namespace heddle::scheduler
