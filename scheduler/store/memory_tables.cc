#include "scheduler/store/memory_tables.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "proto/job_states.h"

namespace heddle::scheduler {

absl::Status MemoryWriter::operator()(const PutJob& change) {
  for (const auto& [id, row] : t_.jobs) {
    if (id != change.row.id && !row.submit_key.empty() && row.submit_key == change.row.submit_key &&
        row.job.spec().user() == change.row.job.spec().user())
      return absl::AlreadyExistsError("another job has this submit key");
  }
  return Put(&t_.jobs, change.row.id, change.row);
}

absl::Status MemoryWriter::operator()(const PutTask& change) {
  if (!t_.jobs.count(change.row.job))
    return absl::AlreadyExistsError("the task's job is not there");
  AddWorkload(change.row.info.key(),
              {change.row.info.workload(), change.row.info.label(), change.row.info.flops()});
  return Put(&t_.tasks, std::make_pair(change.row.job, change.row.index), change.row);
}

absl::Status MemoryWriter::operator()(const CheckFence& change) {
  const Fence& fence = change.fence;
  const auto seen = t_.fences.find(fence.slot);
  if (seen != t_.fences.end() && fence.token < seen->second) return StaleFence(fence, seen->second);
  return Put(&t_.fences, fence.slot, fence.token);
}

absl::Status MemoryWriter::operator()(const PutSearchState& change) {
  const auto key = std::make_pair(change.job, change.task);
  return t_.tasks.count(key) ? Put(&t_.states, key, change.state) : absl::OkStatus();
}

absl::Status MemoryWriter::operator()(const PutLearned& change) {
  const auto key = std::make_pair(change.job, change.task);
  if (t_.tasks.count(key)) (void)Put(&t_.reports, key, change.report);
  ChangeModels([&](TransferModels& m) { m.Count(change.workload.device_key, change.results); });
  if (!t_.workloads.count(change.workload.key)) return absl::OkStatus();
  const auto old = t_.transfer_samples.find(change.workload);
  const bool replaces =
      Replaces(change.transfer_samples,
               old == t_.transfer_samples.end() ? v1::TransferSamples() : old->second.second);
  if (!replaces) return absl::OkStatus();
  return Put(&t_.transfer_samples, change.workload, {change.made_unix_ns, change.transfer_samples});
}

absl::Status MemoryWriter::operator()(const PutTransferModel& change) {
  ChangeModels([&](TransferModels& models) { models.Put(change.id, change.model); });
  return absl::OkStatus();
}

absl::Status MemoryWriter::operator()(const PutMachine& change) {
  return Put(&t_.machines, change.device_key, change.machine);
}

absl::Status MemoryWriter::operator()(const PutExperience& change) {
  for (const v1::KernelFactor& factor : change.factors) {
    if (!t_.workloads.count(factor.workload_key())) continue;
    (void)Put(&t_.factors, {factor.workload_key(), change.target, change.device_key},
              {change.made_unix_ns, factor});
  }
  std::vector<decltype(t_.factors)::iterator> kept;  // of the device key
  for (auto it = t_.factors.begin(); it != t_.factors.end(); ++it) {
    if (it->first.device_key == change.device_key) kept.push_back(it);
  }
  std::stable_sort(kept.begin(), kept.end(),
                   [](const auto& a, const auto& b) { return a->second.first > b->second.first; });
  for (size_t i = kMaxExperience; i < kept.size(); ++i) Erase(&t_.factors, kept[i]);
  return absl::OkStatus();
}

absl::Status MemoryWriter::operator()(const InsertCandidate& change) {
  const auto key = std::make_pair(change.row.job, change.row.id);
  if (!t_.tasks.count({change.row.job, change.row.task})) {
    return absl::AlreadyExistsError("the candidate's task is not there");
  }
  if (t_.candidates.count(key)) return absl::AlreadyExistsError("the candidate is there already");
  return Put(&t_.candidates, key, change);
}

absl::Status MemoryWriter::operator()(const SetAttempts& change) {
  auto it = t_.candidates.find({change.job.value, change.candidate.value});
  if (it == t_.candidates.end()) return absl::OkStatus();
  InsertCandidate candidate = it->second;
  candidate.row.attempts = change.attempts;
  return Put(&t_.candidates, it->first, std::move(candidate));
}

absl::Status MemoryWriter::operator()(const MarkLearned& change) {
  for (const auto& [key, candidate] : t_.candidates) {
    if (key.first != change.job.value || key.second >= change.before.value ||
        candidate.row.task != change.task.value || !t_.record_of.count(key))
      continue;
    InsertCandidate learned = candidate;
    learned.row.learned = true;
    (void)Put(&t_.candidates, key, std::move(learned));
  }
  return absl::OkStatus();
}

absl::Status MemoryWriter::operator()(const InsertRecord& change) {
  MemoryTables::StoredRecord stored{change.record, change.imported};
  v1::Record& record = stored.record;
  record.clear_id();
  record.clear_retraction();
  if (!change.imported) record.clear_imported_by();
  const std::string digest = RecordDigest(record);
  if (change.imported) {
    if (t_.digests.count(digest)) return absl::AlreadyExistsError("the record is there already");
  } else {
    if (auto fence = FenceOf(change)) HEDDLE_RETURN_IF_ERROR((*this)(CheckFence{*fence}));
    const auto key = std::make_pair(ParseJobName(record.job()), record.candidate());
    if (t_.record_of.count(key)) return absl::AlreadyExistsError("the candidate has its record");
    (void)Put(&t_.record_of, key, t_.records.size());
  }
  record.set_median_ns(
      Median({record.measurement().samples_ns().begin(), record.measurement().samples_ns().end()}));
  AddWorkload(record.workload_key(), {record.workload(), record.label(), record.flops()});
  if (t_.digests.insert(digest).second) {
    undo_.push_back([this, digest] { t_.digests.erase(digest); });
  }
  t_.records.push_back(std::move(stored));
  undo_.push_back([this] { t_.records.pop_back(); });
  return absl::OkStatus();
}

absl::Status MemoryWriter::operator()(const RetractRecords& change) {
  for (const int64_t id : change.ids) {
    if (id < 1 || static_cast<size_t>(id) > t_.records.size()) continue;
    const auto index = static_cast<size_t>(id - 1);
    v1::Record& record = t_.records[index].record;
    if (!record.has_retraction()) {
      undo_.push_back([this, index] { t_.records[index].record.clear_retraction(); });
      *record.mutable_retraction() = change.retraction;
    }
    const WorkloadId of{record.workload_key(), record.target(), record.device_key()};
    if (auto it = t_.transfer_samples.find(of); it != t_.transfer_samples.end())
      Erase(&t_.transfer_samples, it);
    if (auto it = t_.factors.find(of); it != t_.factors.end()) Erase(&t_.factors, it);
    ChangeModels([&](TransferModels& models) { models.Forget(of.target, of.device_key); });
  }
  return absl::OkStatus();
}

absl::Status MemoryWriter::operator()(const PutStage& change) {
  return Put(&t_.stages, change.row.span.attempt_id(), change.row);
}

absl::Status MemoryWriter::operator()(const CollectRows& change) {
  const auto job = t_.jobs.find(change.job);
  if (job == t_.jobs.end() || !IsFinal(job->second.job.state())) return NotFinished(change.job);
  for (const int64_t id : change.candidates) {
    const auto found = t_.candidates.find({change.job, id});
    if (found == t_.candidates.end()) continue;
    InsertCandidate candidate = found->second;
    candidate.row.trace.clear();
    (void)Put(&t_.candidates, found->first, std::move(candidate));
  }
  for (const int64_t id : change.records) {
    if (id < 1 || static_cast<size_t>(id) > t_.records.size()) continue;
    const auto index = static_cast<size_t>(id - 1);
    MemoryTables::StoredRecord& stored = t_.records[index];
    if (stored.imported || ParseJobName(stored.record.job()) != change.job) continue;
    v1::Measurement& measured = *stored.record.mutable_measurement();
    undo_.push_back([this, index, before = measured] {
      *t_.records[index].record.mutable_measurement() = before;
    });
    measured = Thinned(measured);
  }
  for (const int64_t attempt : change.attempts) {
    const auto found = t_.stages.find(attempt);
    if (found == t_.stages.end() || std::next(found) == t_.stages.end()) continue;
    const v1::StageSpan& span = found->second.span;
    if (ParseJobName(span.job()) != change.job || span.end_unix_ns() == 0) continue;
    Erase(&t_.stages, found);
  }
  return absl::OkStatus();
}

absl::Status MemoryWriter::operator()(const CollectJob& change) {
  const auto found = t_.jobs.find(change.job);
  if (found == t_.jobs.end() || !IsFinal(found->second.job.state())) return NotFinished(change.job);
  for (auto task = t_.tasks.lower_bound({change.job, 0});
       task != t_.tasks.end() && task->first.first == change.job; ++task) {
    if (auto state = t_.states.find(task->first); state != t_.states.end())
      Erase(&t_.states, state);
    if (auto report = t_.reports.find(task->first); report != t_.reports.end())
      Erase(&t_.reports, report);
  }
  if (found->second.job.collected_unix_ns() != 0) return absl::OkStatus();
  JobRow row = found->second;
  MarkCollected(change.unix_ns, &row.job);
  return Put(&t_.jobs, change.job, std::move(row));
}

void MemoryWriter::Undo() {
  for (auto step = undo_.rbegin(); step != undo_.rend(); ++step) (*step)();
}

void MemoryWriter::ChangeModels(const std::function<void(TransferModels&)>& change) {
  undo_.push_back([this, before = t_.transfer_models] { t_.transfer_models = before; });
  change(t_.transfer_models);
}

void MemoryWriter::AddWorkload(const std::string& key, MemoryTables::Workload workload) {
  auto it = t_.workloads.find(key);
  const bool brings_text =
      it != t_.workloads.end() && it->second.text.empty() && !workload.text.empty();
  if (it == t_.workloads.end() || brings_text) (void)Put(&t_.workloads, key, std::move(workload));
}

}  // namespace heddle::scheduler
