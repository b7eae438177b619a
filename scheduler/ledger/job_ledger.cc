#include "scheduler/ledger/job_ledger.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/quantiles.h"
#include "base/vocabulary/limits.h"
#include "scheduler/ledger/why_waiting.h"

namespace heddle::scheduler {
namespace {

constexpr int kMaxWarnings = 100;        // of one job; later ones are dropped
constexpr size_t kMaxFactorBytes = 512;  // of a KernelFactor; longer ones are dropped
constexpr double kMaxLogFactor = 9.2;    // a factor of 10,000 either way

JobPhase PhaseOf(const JobRow& row) {
  switch (row.job.state()) {
    case v1::JOB_TUNING:
      return Tuning{};
    case v1::JOB_PLANNING:
      return Planning{};
    case v1::JOB_COMPILING:
      return Compiling{};
    case v1::JOB_COMPARING:
      return Comparing{};
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

// The result of the stage that the event ends; null: it ends none, or one with another result.
template <typename Result>
const Result* ResultOf(const Event& event) {
  const auto* end = std::get_if<StageFinished>(&event);
  return end == nullptr ? nullptr : std::get_if<Result>(&end->result);
}

// The worker's answer about a candidate that came with the event; null: there is none.
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
    row.submit_key = submitted->submit_key;
  } else if (const auto* built = std::get_if<CandidateBuilt>(&event)) {
    auto stage = dispatcher.live().find(built->attempt);
    if (stage == dispatcher.live().end()) return;
    JobData& job = jobs_.at(stage->second.job);
    const auto candidate = job.candidates.find(built->candidate);
    if (candidate == job.candidates.end() || candidate->second.outcome) return;
    job.built[built->candidate] = {built->artifact, built->build_ns};
  } else if (const auto* found = std::get_if<RecordsFound>(&event)) {
    std::vector<TaskData>& tasks = jobs_.at(found->job).tasks;
    for (size_t i = 0; i < std::min(tasks.size(), found->known.size()); ++i)
      tasks[i].row.known.untuned_ns = found->known[i].untuned_ns;
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

void JobLedger::Retract(const RecordsRetracted& event, Batch* batch) {
  RetractRecords put{{}, event.retraction};
  std::set<std::pair<JobId, int32_t>> struck;  // tasks that lost a trial
  for (const RecordsRetracted::Record& record : event.records) {
    put.ids.push_back(record.id);
    transfer_samples_.Forget({record.workload_key, record.target, record.device_key});
    transfer_models_.Forget(record.target, record.device_key);
    const auto job = jobs_.find(record.job);
    if (job == jobs_.end()) continue;
    const auto candidate = job->second.candidates.find(record.candidate);
    if (candidate == job->second.candidates.end()) continue;
    candidate->second.outcome = v1::OUTCOME_LOST;
    candidate->second.median_ns = 0;
    struck.insert({record.job, candidate->second.task});
  }
  for (const auto& [id, index] : struck) {
    JobData& job = jobs_.at(id);
    TaskData& task = job.tasks[static_cast<size_t>(index)];
    task.best_ns = task.untuned_ns = 0;
    for (const auto& [number, trial] : job.candidates) {
      if (trial.task != index) continue;
      task.best_ns = Faster(task.best_ns, trial.median_ns);
      if (trial.origin == "default") task.untuned_ns = Faster(task.untuned_ns, trial.median_ns);
    }
  }
  batch->push_back(std::move(put));
}

// Keeps the transfer model of a stage whose result is taken, unless the kept one has learned from
// more. One that learned from all tasks has learned more than one that did not.
void JobLedger::KeepFitted(const FittedModel& fitted, absl::Time wall, Batch* batch) {
  PutTransferModel put{fitted.id, fitted.model};
  put.model.set_made_unix_ns(absl::ToUnixNanos(wall));
  // `since` was the count of learned trials when its samples were gathered (PlanSearch).
  put.model.set_since(transfer_models_.counted(put.id.device_key) - put.model.since());
  const v1::TransferModel* kept = transfer_models_.Find(put.id);
  if (kept != nullptr) {
    const bool all = LearnedFromAll(put.model), kept_all = LearnedFromAll(*kept);
    if (all != kept_all ? kept_all : put.model.since() > kept->since()) return;
  }
  transfer_models_.Put(put.id, put.model);
  batch->push_back(std::move(put));
}

// Keeps the machine of a device key as long as one of its slots reports it. Workers of the same key
// measure slightly different ones, and jobs that begin one after the other should get the same.
void JobLedger::KeepMachines(const std::vector<SlotInfo>& slots, Batch* batch) {
  std::map<std::string, std::vector<std::string>> reported;
  for (const SlotInfo& slot : slots) {
    if (slot.device && !slot.machine.empty()) reported[slot.device_key].push_back(slot.machine);
  }
  for (const auto& [key, machines] : reported) {
    if (machines_.size() >= kMostMachines && !machines_.contains(key)) continue;
    std::string& kept = machines_[key];
    if (std::find(machines.begin(), machines.end(), kept) != machines.end()) continue;
    kept = machines.front();
    batch->push_back(PutMachine{key, kept});
  }
}

const std::string& JobLedger::MachineOf(const std::string& device_key) const {
  static const auto& none = *new std::string();
  const auto found = machines_.find(device_key);
  return found == machines_.end() ? none : found->second;
}

Batch JobLedger::Absorb(const Dispatcher& dispatcher, const Event& event,
                        const std::vector<Change>& changes, absl::Time now, absl::Time wall) {
  Batch batch;
  TakeIn(dispatcher, event);
  if (const auto* changed = std::get_if<SlotsChanged>(&event)) KeepMachines(changed->slots, &batch);
  if (const auto* retracted = std::get_if<RecordsRetracted>(&event)) Retract(*retracted, &batch);
  if (const auto* collected = std::get_if<JobCollected>(&event)) {
    if (const auto job = jobs_.find(collected->job); job != jobs_.end())
      MarkCollected(collected->unix_ns, &job->second.row.job);
    batch.push_back(CollectJob{collected->job.value, collected->unix_ns});
  }
  const auto* imported = ResultOf<Imported>(event);
  const auto* planned = ResultOf<Planned>(event);
  const auto* proposed = ResultOf<Proposed>(event);
  const auto* updated = ResultOf<Updated>(event);
  const auto* compiled = ResultOf<Compiled>(event);
  const auto* compared = ResultOf<Compared>(event);
  bool taken = false;  // the plan, the module or the comparison
  auto put_state = [&](JobId job, TaskIndex task, const std::string& state) {
    TaskOf(job, task).search_state = state;
    batch.push_back(PutSearchState{job.value, task.value, state});
  };
  for (const Change& change : changes) {
    if (const auto* add = std::get_if<AddCandidates>(&change)) {
      JobData& job = jobs_.at(add->job);
      if (proposed->fitted) KeepFitted(*proposed->fitted, wall, &batch);
      for (int i = 0; i < add->count; ++i) {
        const v1::Candidate& made = proposed->candidates[static_cast<size_t>(i)];
        const CandidateId id{add->first.value + i};
        CandidateRow& row = job.candidates[id];
        row = {add->job.value, id.value, add->task.value, made.trace(), made.origin()};
        InsertCandidate insert{row};
        if (made.has_prediction()) insert.prediction = made.prediction();
        batch.push_back(std::move(insert));
      }
      put_state(add->job, add->task, proposed->search_state);
    } else if (const auto* attempts = std::get_if<SetAttempts>(&change)) {
      jobs_.at(attempts->job).candidates.at(attempts->candidate).attempts = attempts->attempts;
      batch.push_back(*attempts);
    } else if (const auto* done = std::get_if<FinishCandidate>(&change)) {
      InsertRecord made = MakeRecord(dispatcher, *done, MeasuredOf(event), wall);
      if (made.record.device_key().empty()) {
        jobs_.at(done->job).held.push_back(std::move(made));
      } else {
        batch.push_back(std::move(made));
      }
      ShareUntuned(*done);
    } else if (const auto* drop = std::get_if<DropArtifacts>(&change)) {
      for (CandidateId id : drop->candidates) jobs_.at(drop->job).built.erase(id);
    } else if (const auto* take = std::get_if<TakeSearch>(&change)) {
      put_state(take->job, take->task, TaskOf(take->from_job, take->from_task).search_state);
    } else if (const auto* learned = std::get_if<MarkLearned>(&change)) {
      int32_t results = 0;  // that the search had not learned
      for (auto& [id, candidate] : jobs_.at(learned->job).candidates) {
        if (id >= learned->before) break;
        if (candidate.task != learned->task.value || !candidate.outcome) continue;
        results += !candidate.learned && candidate.outcome != v1::OUTCOME_LOST;
        candidate.learned = true;
      }
      batch.push_back(*learned);
      if (updated == nullptr) continue;  // the update ended without a result
      if (updated->fitted) KeepFitted(*updated->fitted, wall, &batch);
      put_state(learned->job, learned->task, updated->search_state);
      const JobData& job = jobs_.at(learned->job);
      const WorkloadId workload{TaskOf(learned->job, learned->task).row.info.key(),
                                job.row.job.spec().target(),
                                dispatcher.FindJob(learned->job)->params.device_key};
      // Without a device there are only failed builds. Their samples belong to no device key.
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
          TaskRow& row = job.tasks.emplace_back().row;
          row.job = changed->job.value;
          row.index = i;
          row.info = imported->model.tasks(i);
          row.known.untuned_ns = imported->KnownOf(i).untuned_ns;
        }
      }
      const auto index = static_cast<size_t>(changed->task.value);
      if (planned != nullptr) KeepPlannedTasks(*planned, dispatcher, changed->job);
      UpdateTaskRow(dispatcher.FindJob(changed->job)->tasks[index], &job.tasks[index].row);
      batch.push_back(PutTask{job.tasks[index].row});
    } else if (const auto* job_changed = std::get_if<JobChanged>(&change)) {
      JobData& job = jobs_.at(job_changed->job);
      if (imported != nullptr && imported->model.inputs_size() > 0 &&
          job.row.job.inputs().empty()) {
        *job.row.job.mutable_inputs() = imported->model.inputs();
        *job.row.job.mutable_outputs() = imported->model.outputs();
        job.row.job.set_plan(imported->model.plan());
        if (imported->model.machine().size() <= kMaxMachineBytes)
          job.row.job.set_machine(imported->model.machine());
        job.tuning_since = now;
      }
      // Whatever else changes in this step, only the job that waits for a result takes it, once.
      const v1::JobState before = job.row.job.state();
      if (planned != nullptr && !taken && before == v1::JOB_PLANNING) {
        taken = true;
        KeepPlan(planned->plan, &job.row.job);
        KeepExperience(planned->plan, job, wall, &batch);
      }
      if (compiled != nullptr && !taken && before == v1::JOB_COMPILING) {
        taken = true;
        KeepModules(*compiled, &job.row.job);
      }
      if (compared != nullptr && !taken && before == v1::JOB_COMPARING) {
        taken = true;
        const Job& judged = *dispatcher.FindJob(job_changed->job);
        // A job that goes on tuning has only chosen its plan. Its last comparison is the one to report.
        if (!Is<Tuning>(judged.phase)) {
          KeepComparison(*compared, judged, &job.row.job);
          RetractBroken(*compared, job_changed->job, judged.params.device_key, wall, &batch);
        }
      }
      UpdateJobRow(dispatcher, job_changed->job, now, wall);
      batch.push_back(PutJob{job.row});
      ReleaseHeld(&job, &batch);
      if (dispatcher.FindJob(job_changed->job)->final()) Forget(&job, &batch);
    }
  }
  const auto* end = std::get_if<StageFinished>(&event);
  const bool has_result = end != nullptr && !std::holds_alternative<std::monostate>(end->result);
  if (has_result && !end->fence.slot.slot.empty() && !batch.empty())
    batch.insert(batch.begin(), CheckFence{end->fence});
  return batch;
}

// Drops what nobody needs once a job is over. Search states are most of a database.
void JobLedger::Forget(JobData* job, Batch* batch) {
  job->candidates.clear();
  job->built.clear();
  job->held.clear();
  for (size_t i = 0; i < job->tasks.size(); ++i) {
    job->tasks[i].search_state.clear();
    batch->push_back(PutSearchState{job->row.id, static_cast<int32_t>(i), ""});
  }
}

// Writes the held records once the job has a device key. Their slots are left out: nothing was
// measured there, and the fencing tokens may be outdated by now.
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

// Takes in the tasks that the plan added.
void JobLedger::KeepPlannedTasks(const Planned& planned, const Dispatcher& dispatcher, JobId id) {
  const std::vector<Task>& tasks = dispatcher.FindJob(id)->tasks;
  JobData& job = jobs_.at(id);
  std::map<std::string, int> told;
  for (int i = 0; i < planned.plan.tasks_size(); ++i) told.emplace(planned.plan.tasks(i).key(), i);
  while (job.tasks.size() < tasks.size()) {
    const int found = told.at(tasks[job.tasks.size()].key);
    TaskRow& row = job.tasks.emplace_back().row;
    row.job = id.value;
    row.index = static_cast<int32_t>(job.tasks.size()) - 1;
    row.info = planned.plan.tasks(found);
    row.known.untuned_ns = planned.KnownOf(found).untuned_ns;
  }
}

// Keeps what the stage found of kernels whose default schedule was measured. Some of a job's tasks may be
// known by imported records only, which do not say how they were made.
void JobLedger::KeepExperience(const v1::PlanResult& planned, const JobData& job, absl::Time wall,
                               Batch* batch) {
  if (planned.experience().empty() || job.row.device_key.empty()) return;
  std::set<std::string> untuned;
  for (const TaskData& task : job.tasks) {
    if (Faster(task.untuned_ns, task.row.known.untuned_ns) > 0) untuned.insert(task.row.info.key());
  }
  PutExperience put{job.row.job.spec().target(), job.row.device_key, absl::ToUnixNanos(wall), {}};
  for (const v1::KernelFactor& factor : planned.experience()) {
    // Also false for NaN. What is farther off than that would decide every later plan.
    const bool sane =
        std::abs(factor.log_factor()) <= kMaxLogFactor && factor.ByteSizeLong() <= kMaxFactorBytes;
    if (sane && untuned.erase(factor.workload_key()) > 0) put.factors.push_back(factor);
  }
  if (!put.factors.empty()) batch->push_back(std::move(put));
}

void JobLedger::KeepPlan(const v1::PlanResult& planned, v1::Job* row) {
  const v1::PlanReport first = row->plan_report();
  const bool again = row->has_plan_report();
  *row->mutable_plan_report() = planned.report();
  // Later stages were told what the job itself found, too.
  if (again) {
    row->mutable_plan_report()->set_experience_kernels(first.experience_kernels());
    row->mutable_plan_report()->set_experience_error(first.experience_error());
  }
  if (row->estimated_plan().empty()) row->set_estimated_plan(row->plan());
  row->set_plan(planned.plan());
  if (row->plan() == row->estimated_plan()) row->clear_estimated_plan();
}

void JobLedger::KeepModules(const Compiled& compiled, v1::Job* row) {
  row->set_module_digest(compiled.module_digest);
  row->mutable_claims()->Assign(compiled.claims.begin(), compiled.claims.end());
  // A module that is compiled again is compared with the same default one.
  if (!compiled.default_digest.empty()) row->set_default_digest(compiled.default_digest);
  row->set_other_digest(compiled.other_digest);
  if (!compiled.other_default_digest.empty())
    row->set_other_default_digest(compiled.other_default_digest);
}

void JobLedger::RetractBroken(const Compared& compared, JobId id, const std::string& device_key,
                              absl::Time wall, Batch* batch) {
  const v1::Job& row = jobs_.at(id).row.job;
  for (const BrokenRecord& broken : compared.broken) {
    const v1::Claim& claim = broken.claim.claim();
    RecordsRetracted event;
    event.records.push_back(
        {claim.record(), {}, {}, claim.workload_key(), row.spec().target(), device_key});
    event.retraction.set_reason(broken.reason);
    event.retraction.set_by("scheduler");
    event.retraction.set_unix_ns(absl::ToUnixNanos(wall));
    Retract(event, batch);
    AddWarnings(id, {absl::StrCat("record ", claim.record(), ", imported by ", claim.imported_by(),
                                  ", is retracted: ", broken.reason)});
  }
}

void JobLedger::KeepComparison(const Compared& compared, const Job& job, v1::Job* row) {
  const v1::CompareResult& result = compared.result;
  v1::Comparison& comparison = *row->mutable_comparison();
  for (const BrokenRecord& broken : compared.broken) *comparison.add_broken() = broken.claim;
  *comparison.mutable_result() = result;
  comparison.set_made(job.compared);
  for (const v1::CompareResult::Task& found : result.tasks()) {
    const bool back = std::any_of(job.tasks.begin(), job.tasks.end(), [&](const Task& task) {
      return task.keep_default && task.key == found.workload_key();
    });
    if (back) *comparison.add_taken_back() = found;
  }
  if (!job.final()) return;
  const bool other = !row->other_digest().empty();
  std::string module_digest = row->module_digest();
  // The kernels of the plan add up to less, and yet the whole is not surely faster.
  if (other && !IsFaster(result.other_gain())) {
    comparison.set_plan_taken_back(true);
    comparison.mutable_result()->set_ns(result.other_ns());
    *comparison.mutable_result()->mutable_gain() = result.other_over_default();
    module_digest = row->other_digest();
  }
  // Each kernel was faster by itself, and yet the whole is not: the default module is the better one.
  const std::string& plain = other ? row->other_default_digest() : row->default_digest();
  const bool estimated = comparison.plan_taken_back();
  // The module and the plain one may differ all the same, by when they were made and who signed them.
  const bool all_back =
      (!other || estimated) && result.tasks().empty() &&
      std::all_of(job.tasks.begin(), job.tasks.end(), [&](const Task& task) {
        return task.keep_default || (estimated ? task.estimated_weight : task.weight) == 0;
      });
  if (module_digest == plain || all_back) {  // every kernel was taken back, and nothing differs
    // What was measured is one module twice, so it says nothing of a gain: there is no interval.
    v1::CompareResult& same = *comparison.mutable_result();
    same.set_ns(same.default_ns());
    same.mutable_gain()->Clear();
    same.mutable_gain()->set_ratio(1);
  } else if (IsSlower(comparison.result().gain()) && !plain.empty()) {
    comparison.set_module_is_default(true);
    module_digest = plain;
  }
  row->set_module_digest(module_digest);
}

InsertRecord JobLedger::MakeRecord(const Dispatcher& dispatcher, const FinishCandidate& done,
                                   const Measured* measured, absl::Time wall) {
  JobData& job = jobs_.at(done.job);
  TaskData& task = TaskOf(done.job, done.task);
  const v1::TaskInfo& info = task.row.info;
  CandidateRow& candidate = job.candidates.at(done.candidate);
  const auto built = job.built.extract(done.candidate);
  InsertRecord out;
  v1::Record& record = out.record;
  record.set_schema_version(1);
  record.set_workload_key(info.key());
  record.set_workload(info.workload());
  record.set_label(info.label());
  record.set_flops(info.flops());
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
    if (record.measurement().build_ns() == 0 && built)
      record.mutable_measurement()->set_build_ns(built.mapped().build_ns);
  }
  record.mutable_measurement()->set_outcome(done.outcome);
  if (done.outcome != v1::OUTCOME_OK) record.mutable_measurement()->set_message(done.message);
  const auto& samples = record.measurement().samples_ns();
  record.set_median_ns(done.outcome == v1::OUTCOME_OK ? Median({samples.begin(), samples.end()})
                                                      : 0);

  // People look at the best trial beside the default one. The others would fill the database with texts.
  const bool fastest =
      record.median_ns() > 0 && (task.best_ns == 0 || record.median_ns() < task.best_ns);
  if (!fastest && (candidate.origin != "default" || record.median_ns() <= 0))
    record.mutable_measurement()->clear_loops();
  candidate.outcome = done.outcome;
  candidate.median_ns = record.median_ns();
  task.best_ns = Faster(task.best_ns, record.median_ns());
  if (candidate.origin == "default") task.untuned_ns = Faster(task.untuned_ns, record.median_ns());
  return out;
}

// Tells the default schedule's time to the other live jobs with the same workload, target and
// device key, because they will not measure it. Jobs with --force measure everything themselves.
void JobLedger::ShareUntuned(const FinishCandidate& done) {
  const JobData& job = jobs_.at(done.job);
  const CandidateRow& candidate = job.candidates.at(done.candidate);
  if (candidate.origin != "default" || candidate.median_ns <= 0) return;
  if (job.row.job.spec().force()) return;
  const std::string& key = TaskOf(done.job, done.task).row.info.key();
  for (auto& [id, other] : jobs_) {
    if (id == done.job || other.row.job.finished_unix_ns() != 0 || other.row.job.spec().force() ||
        other.row.device_key != job.row.device_key ||
        other.row.job.spec().target() != job.row.job.spec().target())
      continue;
    for (TaskData& same : other.tasks) {
      double& untuned_ns = same.row.known.untuned_ns;
      if (same.row.info.key() == key) untuned_ns = Faster(untuned_ns, candidate.median_ns);
    }
  }
}

void JobLedger::UpdateTaskRow(const Task& task, TaskRow* row) {
  const double untuned_ns = row->known.untuned_ns;
  static_cast<TaskProgress&>(*row) = task;
  row->known.untuned_ns = untuned_ns;  // ShareUntuned keeps it up to date, not the dispatcher
  row->info.set_weight(task.weight);
  row->info.set_rival_weight(task.rival_weight);
  row->done = Is<Finished>(task.phase);
  row->warm_pending = task.unlearned.known || task.unlearned.others;
}

void JobLedger::UpdateJobRow(const Dispatcher& dispatcher, JobId id, absl::Time now,
                             absl::Time wall) {
  const Job& job = *dispatcher.FindJob(id);
  JobData& data = jobs_.at(id);
  v1::Job& row = data.row.job;
  row.set_state(StateOf(job));
  data.row.paused = job.paused.has_value();
  data.row.device_key = job.params.device_key;
  row.mutable_spec()->set_priority(job.params.priority);
  row.clear_fault();
  if (const auto* failed = std::get_if<Failed>(&job.phase)) {
    row.mutable_fault()->set_kind(failed->fault.kind);
    row.mutable_fault()->set_message(failed->fault.message);
  }
  const auto* cancelled = std::get_if<Cancelled>(&job.phase);
  row.set_reason(cancelled    ? cancelled->reason
                 : job.paused ? *job.paused
                              : DescribeJob(dispatcher, job, now));
  row.set_stop(job.stop);
  if (!job.not_compared.empty()) row.mutable_comparison()->set_missing(job.not_compared);
  row.set_surveys(job.surveys);
  row.set_plan_settled(job.settled);
  if (!row.estimated_plan().empty() && job.has_estimated_plan) {
    row.set_plan(row.estimated_plan());
    row.clear_estimated_plan();
  }
  if (Is<Tuning>(job.phase)) row.clear_module_digest();  // it was made to choose the plan
  if (job.final() || Is<Tuning>(job.phase)) {
    row.clear_default_digest();
    row.clear_other_digest();
    row.clear_other_default_digest();
    row.clear_claims();
  }
  row.set_tuning_ms(absl::ToInt64Milliseconds(Tuned(job, now)));
  row.set_running_ms(absl::ToInt64Milliseconds(data.Busy(now)));
  if (job.final()) SetDeadlineWarning(id, "");
  if (job.final() && row.finished_unix_ns() == 0) row.set_finished_unix_ns(absl::ToUnixNanos(wall));
}

void JobLedger::CountBusy(JobId id, bool busy, absl::Time now) {
  JobData& data = jobs_.at(id);
  if (busy == data.busy_since.has_value()) return;
  data.busy = data.Busy(now);
  data.busy_since = busy ? std::optional(now) : std::nullopt;
}

// ---- restart ----

void JobLedger::LoadTransferModels(const std::map<TransferModelId, v1::TransferModel>& stored) {
  for (const auto& [id, model] : stored) transfer_models_.Put(id, model);
}

Job JobLedger::Load(StoredJob stored, absl::Time now, absl::Time wall) {
  JobData& data = jobs_[JobId{stored.row.id}];
  data.row = stored.row;
  data.busy = absl::Milliseconds(stored.row.job.running_ms());
  Job job;
  job.id = JobId{stored.row.id};
  absl::StatusOr<JobParams> params = ParamsFrom(stored.row.job.spec(), now, wall);
  if (params.ok()) job.params = *params;
  job.params.device_key = stored.row.device_key;
  job.phase = PhaseOf(stored.row);
  const bool after = Is<Compiling>(job.phase) || Is<Comparing>(job.phase) || Is<Done>(job.phase);
  job.settled = !job.params.plan || after || stored.row.job.plan_settled();
  job.surveys = stored.row.job.surveys();
  job.has_estimated_plan = stored.row.job.estimated_plan().empty();
  if (stored.row.paused) job.paused = stored.row.job.reason();
  job.stop = stored.row.job.stop();
  job.tuned = absl::Milliseconds(stored.row.job.tuning_ms());
  const v1::Comparison& comparison = stored.row.job.comparison();
  job.compared = comparison.made();
  job.not_compared = comparison.missing();
  std::vector<bool> unlearned(stored.tasks.size(), false);
  // Of each task: its candidates from the first open one on, and whether each is open.
  std::vector<std::vector<std::pair<CandidateId, bool>>> in_flight(stored.tasks.size());
  for (size_t i = 0; i < stored.tasks.size(); ++i) {
    const TaskRow& row = stored.tasks[i];
    TaskData& task = data.tasks.emplace_back(TaskData{row, std::move(stored.states[i])});
    task.row.info.set_rival_weight(row.rival_weight);
    job.tasks.push_back(MakeTask(row.info, row));
    job.tasks.back().unlearned.known = row.warm_pending;
    for (const v1::CompareResult::Task& back : comparison.taken_back())
      job.tasks.back().keep_default |= back.workload_key() == row.info.key();
    for (const v1::BrokenClaim& broken : comparison.broken())
      job.tasks.back().replaced |= broken.claim().workload_key() == row.info.key();
  }
  for (StoredCandidate& row : stored.candidates) {
    const CandidateId id{row.id};
    job.next_candidate = std::max(job.next_candidate, row.id + 1);
    if (!job.final()) {
      // The traces of all unfinished jobs are most of what is loaded, so none of them is there twice.
      std::string trace = std::exchange(row.trace, {});
      CandidateRow& kept = data.candidates[id] = row;
      kept.trace = std::move(trace);
    }
    Task& task = job.tasks[static_cast<size_t>(row.task)];
    if (!row.outcome || !task.open.empty())
      in_flight[static_cast<size_t>(row.task)].emplace_back(id, !row.outcome);
    if (!row.outcome) {
      task.open[id] = {row.attempts, Unbuilt{}};
      continue;
    }
    const bool valid = *row.outcome == v1::OUTCOME_OK;
    CountTrial(&task, id, valid, row.median_ns, row.message);
    task.device_ns += static_cast<double>(row.profile_ns);
    task.best_ns = Faster(task.best_ns, row.median_ns);
    ++data.trials_before;
    if (!row.learned && task.open.empty()) unlearned[static_cast<size_t>(row.task)] = true;
    if (!valid) continue;
    TaskData& measured = data.tasks[static_cast<size_t>(row.task)];
    measured.best_ns = Faster(measured.best_ns, row.median_ns);
    if (row.origin == "default") measured.untuned_ns = Faster(measured.untuned_ns, row.median_ns);
  }
  for (size_t i = 0; i < job.tasks.size(); ++i) {
    Task& task = job.tasks[i];
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
  return job;
}

}  // namespace heddle::scheduler
