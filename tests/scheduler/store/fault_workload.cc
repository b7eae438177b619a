#include "tests/scheduler/store/fault_workload.h"

#include <memory>

#include "absl/strings/str_cat.h"
#include "base/vocabulary/limits.h"
#include "scheduler/store/memory_record_store.h"
#include "tests/scheduler/store/record_store_fixture.h"

namespace heddle::scheduler {
namespace {

constexpr int kTasks = 2, kCandidates = 5;

PutStage Stage(int64_t attempt, int64_t job, bool ended) {
  StageRow row;
  row.span.set_job(JobName(job));
  row.span.set_kind(v1::STAGE_PROFILE);
  row.span.set_attempt_id(attempt);
  row.span.set_worker("w1");
  row.span.set_slot("profile0");
  row.span.set_start_unix_ns(1000 * attempt);
  if (ended) row.span.set_end_unix_ns(1000 * attempt + 500);
  row.lease_id = absl::StrCat("lease ", attempt);
  return {row};
}

InsertRecord ImportedRecord(int64_t number) {
  InsertRecord change = MakeRecord(77, number, 0, 500 + static_cast<double>(number));
  change.record.mutable_measurement()->mutable_evidence()->clear_slot();
  change.imported = true;
  return change;
}

PutLearned Learned(int64_t job, int task, int32_t measured) {
  PutLearned put{job, task, {}, {Key(task), "llvm -mcpu=x", "dev"}, {}, 100 * measured, measured};
  put.report.set_samples(measured);
  put.transfer_samples.set_samples(absl::StrCat("samples of ", measured));
  put.transfer_samples.set_measured(measured);
  put.transfer_samples.set_version(1);
  return put;
}

PutTransferModel Model(int64_t job) {
  PutTransferModel put{{"llvm -mcpu=x", "dev", absl::StrCat("strategy ", job)}, {}};
  put.model.set_model(absl::StrCat("model of job ", job));
  put.model.set_made_unix_ns(1000 * job);
  return put;
}

PutExperience Found(int64_t job) {
  PutExperience put{"llvm -mcpu=x", "dev", 10 * job, {}};
  v1::KernelFactor& factor = put.factors.emplace_back();
  factor.set_workload_key(Key(0));
  factor.set_op("conv");
  factor.set_log_factor(0.25 * static_cast<double>(job));
  factor.set_version(1);
  return put;
}

}  // namespace

std::vector<std::vector<Batch>> FaultWorkload(int jobs, size_t state_bytes) {
  std::vector<std::vector<Batch>> groups;
  int64_t attempt = 0;
  uint64_t token = 10;
  for (int64_t job = 1; job <= jobs; ++job) {
    JobRow row = MakeJob(job);
    row.submit_key = absl::StrCat("key ", job);
    Batch made = {PutJob{row}};
    for (int task = 0; task < kTasks; ++task) made.push_back(PutTask{MakeTask(job, task)});
    groups.push_back({made});
    Batch proposed = {CheckFence{{{"w1", "cpu0"}, token}}};
    for (int64_t id = 1; id <= kCandidates; ++id) {
      InsertCandidate insert{
          MakeCandidate(job, id, static_cast<int>(id % kTasks), id == 1 ? "default" : "random")};
      if (id % 2 == 0) insert.prediction.emplace().set_score(0.5);
      proposed.push_back(insert);
    }
    const char fill = static_cast<char>('a' + job % 26);
    proposed.push_back(PutSearchState{job, 0, std::string(state_bytes, fill)});
    groups.push_back({proposed, {Stage(++attempt, job, false)}});
    // Three measurements in one transaction; the second batch is refused, the others are taken.
    groups.push_back({{MakeRecord(job, 1, 1, 300 + static_cast<double>(job), token)},
                      {MakeRecord(job, 1, 1, 200, token), SetAttempts{job, 2, 3}},
                      {MakeRecord(job, 2, 0, 0, token), SetAttempts{job, 3, 1}}});
    groups.push_back({{Stage(attempt, job, true)}, {MakeRecord(job, 3, 1, 100, token)}});
    // A result under an old lease, which is refused.
    groups.push_back({{CheckFence{{{"w1", "cpu0"}, token - 1}}, PutSearchState{job, 0, "older"}}});
    groups.push_back(
        {{CheckFence{{{"w1", "cpu0"}, token}},
          PutSearchState{job, 1, std::string(state_bytes, '0')}, MarkLearned{job, 1, 4},
          Learned(job, 1, static_cast<int32_t>(job)), Model(job)}});
    groups.push_back({{PutMachine{"dev", absl::StrCat("machine ", job)}}, {Found(job)}});
    groups.push_back({{ImportedRecord(job)}, {ImportedRecord(job)}});
    row.job.set_state(job % 3 == 0 ? v1::JOB_TUNING : v1::JOB_DONE);
    row.job.set_module_digest(absl::StrCat("module ", job));
    if (job % 3 != 0) row.job.set_finished_unix_ns(2000 + job);
    TaskRow done = MakeTask(job, 0);
    done.done = true;
    groups.push_back({{PutTask{done}, PutJob{row}, PutSearchState{job, 0, ""}}});
    token += 2;
    // The job before has ended; each job has one stage and four records. The last stage of all stays.
    if (job % 3 == 2) {
      const int64_t first = 4 * (job - 2) + 1;
      groups.push_back({{CollectRows{job - 1, {1, 2, 3}, {first, first + 1}, {attempt - 1}}},
                        {CollectRows{job, {}, {}, {attempt}}}});
      groups.push_back({{CollectJob{job - 1, 3000 + job}}, {CollectJob{job + 1, 1}}});
      RetractRecords retract{{first + 1}, {}};
      retract.retraction.set_reason("its clock was broken");
      retract.retraction.set_by("ann");
      retract.retraction.set_unix_ns(4000 + job);
      groups.push_back({{retract}});
      // In one batch: each kind of store has an order of its own, so which records are the first three differs.
      groups.push_back({{RemoveRecords{{6000, 1}, {}, 3}, RemoveRecords{{6000, 1}, {}, 1000}}});
    }
  }
  return groups;
}

std::string Dump(RecordStore* store) {
  std::string text;
  const auto add = [&text](const auto&... parts) {
    absl::StrAppend(&text, parts...);
    text += '\n';
  };
  const absl::StatusOr<std::vector<StoredJob>> jobs = store->LoadJobs();
  if (!jobs.ok()) return jobs.status().ToString();
  for (const StoredJob& job : *jobs) {
    const int64_t id = job.row.id;
    add("job ", id, job.row.paused, " ", job.row.device_key, " ", job.row.submit_key, " ",
        job.row.job.ShortDebugString());
    for (size_t i = 0; i < job.tasks.size(); ++i) {
      const TaskRow& task = job.tasks[i];
      const auto report = store->Report(id, task.index);
      add("task ", task.index, " ", task.info.ShortDebugString(), " ", task.budget, " ",
          task.known.total, " ", task.done, task.exhausted, task.warm_pending, " ",
          task.estimated_weight, " ", task.rival_weight, " ", job.states[i].size(), " ",
          job.states[i].substr(0, 10), " ",
          report.ok() && *report ? (*report)->ShortDebugString() : "");
    }
    for (const StoredCandidate& one : job.candidates) {
      add("candidate ", one.id, " ", one.task, " ", one.trace, " ", one.origin, " ", one.attempts,
          " ", one.learned, " ", one.outcome ? static_cast<int>(*one.outcome) : -1, " ",
          one.median_ns, " ", one.message);
    }
    const auto spans = store->Timeline(id, 0, 1000);
    for (const v1::StageSpan& span : *spans) add("stage ", span.ShortDebugString());
  }
  const auto unfinished = store->UnfinishedStages();
  for (const StageRow& row : *unfinished) add("open ", row.span.attempt_id(), " ", row.lease_id);
  add("last ", *store->LastJob(), " ", *store->LastAttempt());
  const auto fences = store->Fences();
  for (const auto& [slot, token] : *fences) add("fence ", slot.worker, "/", slot.slot, " ", token);
  v1::RecordQuery all;
  all.set_limit(kMaxQueryLimit);
  all.set_with_workload(true);
  all.set_retracted(true);
  const auto records = store->Query(all);
  for (const v1::Record& record : *records) add("record ", record.ShortDebugString());
  const auto machines = store->Machines();
  for (const auto& [key, machine] : *machines) add("machine ", key, " ", machine);
  const auto models = store->AllTransferModels();
  for (const auto& [id, model] : *models)
    add("model ", id.target, " ", id.device_key, " ", id.strategy, " ", model.ShortDebugString());
  const auto related = store->FindRelatedSamples({"none", "llvm -mcpu=x", "dev"}, 100);
  for (const TransferSamples& samples : *related)
    add("samples ", samples.workload.key, " ", samples.learned.ShortDebugString());
  const auto experience = store->FindExperience("llvm -mcpu=x", "dev", 100);
  for (const v1::KernelFactor& factor : experience->device)
    add("factor ", factor.ShortDebugString());
  const auto blobs = store->BlobsOfJobs();
  for (const JobBlobs& used : *blobs) add("blobs ", used.job, " ", used.blobs.size());
  return text;
}

std::vector<std::string> StatesOf(const std::vector<std::vector<Batch>>& groups) {
  const std::unique_ptr<RecordStore> store = MakeMemoryRecordStore();
  std::vector<std::string> states = {Dump(store.get())};
  for (const std::vector<Batch>& group : groups) {
    (void)store->Apply(group);
    states.push_back(Dump(store.get()));
  }
  return states;
}

}  // namespace heddle::scheduler
