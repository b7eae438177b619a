#include "scheduler/store/memory_tables.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/quantiles.h"
#include "base/status_macros.h"
#include "proto/job_states.h"

namespace heddle::scheduler {
namespace {

WorkloadId WorkloadOf(const v1::Record& record) {
  return {record.workload_key(), record.target(), record.device_key()};
}

// Whether a record that has enough newer ones of its workload, target and device key is needed by
// nobody (OldRecordRule).
bool IsSuperseded(const MemoryTables& tables, int64_t id) {
  const MemoryTables::StoredRecord& stored = tables.records.at(id);
  const v1::Record& record = stored.record;
  const auto candidate = tables.candidates.find({ParseJobName(record.job()), record.candidate()});
  if (!stored.imported && candidate != tables.candidates.end() &&
      candidate->second.row.origin == "default")
    return false;
  for (const auto& [key, task] : tables.tasks) {
    if (task.info.key() == record.workload_key() && !IsFinal(tables.jobs.at(key.first).job.state()))
      return false;
  }
  // Of all, and of those that were not imported.
  bool best = record.measurement().outcome() == v1::OUTCOME_OK;
  bool best_here = best && !stored.imported;
  for (const auto& [other_id, other_stored] : tables.records) {
    const v1::Record& other = other_stored.record;
    if (other_id == id || other.has_retraction() || WorkloadOf(other) != WorkloadOf(record))
      continue;
    if (other.measurement().outcome() == v1::OUTCOME_OK &&
        std::pair(other.median_ns(), other_id) < std::pair(record.median_ns(), id)) {
      best = false;
      best_here &= other_stored.imported;
    }
  }
  return !best && !best_here;
}

}  // namespace

OldRecords OldRecordsOf(const MemoryTables& tables, const OldRecordRule& rule,
                        const std::optional<OldRecordPlace>& after, int64_t limit) {
  using Key = std::array<int64_t, 3>;  // group, time and id
  std::vector<Key> order;
  for (const auto& [id, stored] : tables.records) {
    const Key key = {tables.groups.at(WorkloadOf(stored.record)), stored.record.created_unix_ns(),
                     id};
    if (!after || key < Key{after->group[0], after->created_unix_ns, after->id})
      order.push_back(key);
  }
  std::sort(order.rbegin(), order.rend());
  OldRecords found;
  OldRecordPlace place = after.value_or(OldRecordPlace());
  int64_t looked = 0;
  for (const auto& [group, created_unix_ns, id] : order) {
    if (looked == limit) break;
    ++looked;
    if (place.group[0] != group) place = {.group = {group}};
    place.created_unix_ns = created_unix_ns;
    place.id = id;
    const MemoryTables::StoredRecord& stored = tables.records.at(id);
    const v1::Record& record = stored.record;
    bool old = record.has_retraction() && record.retraction().unix_ns() < rule.before_unix_ns;
    if (!record.has_retraction()) {
      old = place.newer >= std::max<int64_t>(1, rule.newest) &&
            created_unix_ns < rule.before_unix_ns && IsSuperseded(tables, id);
      ++place.newer;
    }
    const auto job = tables.jobs.find(ParseJobName(record.job()));
    const bool collected = job != tables.jobs.end() && IsFinal(job->second.job.state()) &&
                           job->second.job.model_digest().empty();
    const bool in_use = !stored.imported && !collected;  // by its job
    if (!old || in_use || id == tables.records.rbegin()->first) continue;
    found.ids.push_back(id);
    found.bytes += static_cast<int64_t>(record.ByteSizeLong());
  }
  if (looked == limit) found.last = place;
  return found;
}

absl::Status MemoryWriter::operator()(const PutJob& change) {
  if (!change.row.submit_key.empty()) {  // simulations have many jobs, without keys
    for (const auto& [id, row] : t_.jobs) {
      if (id != change.row.id && row.submit_key == change.row.submit_key &&
          row.job.spec().user() == change.row.job.spec().user())
        return absl::AlreadyExistsError("another job has this submit key");
    }
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
  if (replaces) PutSamples(change.workload, change.made_unix_ns, change.transfer_samples);
  return absl::OkStatus();
}

void MemoryWriter::PutSamples(const WorkloadId& id, int64_t made_unix_ns,
                              const v1::TransferSamples& samples) {
  EraseSamples(id);
  (void)Put(&t_.transfer_samples, id, {made_unix_ns, samples});
  auto* const newest = &t_.newest_samples[{id.target, id.device_key}];
  const std::pair place(-made_unix_ns, id.key);
  newest->insert(place);
  undo_.push_back([newest, place] { newest->erase(place); });
}

void MemoryWriter::EraseSamples(const WorkloadId& id) {
  const auto found = t_.transfer_samples.find(id);
  if (found == t_.transfer_samples.end()) return;
  auto* const newest = &t_.newest_samples[{id.target, id.device_key}];
  const std::pair place(-found->second.first, id.key);
  newest->erase(place);
  undo_.push_back([newest, place] { newest->insert(place); });
  Erase(&t_.transfer_samples, found);
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
  InsertCandidate candidate = change;
  candidate.row.outcome.reset();
  candidate.row.median_ns = 0;
  return Put(&t_.candidates, key, std::move(candidate));
}

absl::Status MemoryWriter::operator()(const SetAttempts& change) {
  auto it = t_.candidates.find({change.job.value, change.candidate.value});
  if (it == t_.candidates.end()) return absl::OkStatus();
  InsertCandidate candidate = it->second;
  candidate.row.attempts = change.attempts;
  return Put(&t_.candidates, it->first, std::move(candidate));
}

absl::Status MemoryWriter::operator()(const MarkLearned& change) {
  const auto end = t_.candidates.lower_bound({change.job.value, change.before.value});
  for (auto it = t_.candidates.lower_bound({change.job.value, 0}); it != end; ++it) {
    const auto& [key, candidate] = *it;
    if (candidate.row.learned || candidate.row.task != change.task.value ||
        !t_.record_of.count(key))
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
    if (t_.digests.count(digest))
      return absl::AlreadyExistsError("the record is there already, or was retracted");
  } else {
    if (auto fence = FenceOf(change)) HEDDLE_RETURN_IF_ERROR((*this)(CheckFence{*fence}));
    const auto key = std::make_pair(ParseJobName(record.job()), record.candidate());
    if (t_.record_of.count(key)) return absl::AlreadyExistsError("the candidate has its record");
    (void)Put(&t_.record_of, key, NextRecord());
  }
  record.set_median_ns(
      Median({record.measurement().samples_ns().begin(), record.measurement().samples_ns().end()}));
  AddWorkload(record.workload_key(), {record.workload(), record.label(), record.flops()});
  t_.groups.emplace(WorkloadOf(record), static_cast<int64_t>(t_.groups.size()) + 1);
  if (t_.digests.insert(digest).second) {
    undo_.push_back([this, digest] { t_.digests.erase(digest); });
  }
  if (!change.imported && !record.measurement().loops().empty()) KeepLoops(&record);
  const int64_t id = NextRecord();
  std::set<int64_t>* const ids = &t_.ids_of[WorkloadOf(record)];
  ids->insert(id);
  undo_.push_back([ids, id] { ids->erase(id); });
  return Put(&t_.records, id, std::move(stored));
}

void MemoryWriter::KeepLoops(v1::Record* record) {
  const auto untuned = [&](const v1::Record& its) {
    const auto candidate = t_.candidates.find({ParseJobName(its.job()), its.candidate()});
    return candidate != t_.candidates.end() && candidate->second.row.origin == "default";
  };
  if (untuned(*record)) return;
  const v1::Record* best = nullptr;
  int64_t best_id = 0;
  for (const int64_t id : t_.ids_of[WorkloadOf(*record)]) {
    const MemoryTables::StoredRecord& other = t_.records.at(id);
    const v1::Record& its = other.record;
    if (other.imported || its.has_retraction() || its.measurement().outcome() != v1::OUTCOME_OK ||
        untuned(its))
      continue;
    if (best != nullptr && its.median_ns() >= best->median_ns()) continue;
    best = &its;
    best_id = id;
  }
  if (best == nullptr) return;
  if (best->median_ns() <= record->median_ns()) {
    record->mutable_measurement()->clear_loops();
    return;
  }
  undo_.push_back([this, best_id, loops = best->measurement().loops()] {
    t_.records.at(best_id).record.mutable_measurement()->set_loops(loops);
  });
  t_.records.at(best_id).record.mutable_measurement()->clear_loops();
}

absl::Status MemoryWriter::operator()(const RetractRecords& change) {
  for (const int64_t id : change.ids) {
    const auto found = t_.records.find(id);
    if (found == t_.records.end()) continue;
    v1::Record& record = found->second.record;
    if (!record.has_retraction()) {
      undo_.push_back([this, id = id] { t_.records.at(id).record.clear_retraction(); });
      *record.mutable_retraction() = change.retraction;
    }
    const WorkloadId of{record.workload_key(), record.target(), record.device_key()};
    EraseSamples(of);
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
    const auto found = t_.records.find(id);
    if (found == t_.records.end()) continue;
    MemoryTables::StoredRecord& stored = found->second;
    if (stored.imported || ParseJobName(stored.record.job()) != change.job) continue;
    v1::Measurement& measured = *stored.record.mutable_measurement();
    undo_.push_back([this, id = id, before = measured] {
      *t_.records.at(id).record.mutable_measurement() = before;
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

absl::Status MemoryWriter::operator()(const RemoveRecords& change) {
  for (const int64_t id : OldRecordsOf(t_, change.rule, change.after, change.limit).ids) {
    const auto found = t_.records.find(id);
    const v1::Record& record = found->second.record;
    const bool retracted = record.has_retraction();
    if (!found->second.imported) {
      const auto key = std::make_pair(ParseJobName(record.job()), record.candidate());
      if (const auto candidate = t_.candidates.find(key); candidate != t_.candidates.end()) {
        InsertCandidate kept = candidate->second;
        kept.row.outcome = retracted ? v1::OUTCOME_LOST : record.measurement().outcome();
        kept.row.median_ns = retracted ? 0 : record.median_ns();
        (void)Put(&t_.candidates, key, std::move(kept));
      }
      if (const auto of = t_.record_of.find(key); of != t_.record_of.end())
        Erase(&t_.record_of, of);
    }
    if (!retracted) {
      const std::string digest = RecordDigest(record);
      if (t_.digests.erase(digest) > 0)
        undo_.push_back([this, digest] { t_.digests.insert(digest); });
    }
    std::set<int64_t>* const ids = &t_.ids_of[WorkloadOf(record)];
    ids->erase(id);
    undo_.push_back([ids, id] { ids->insert(id); });
    Erase(&t_.records, found);
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

int64_t MemoryWriter::NextRecord() const {
  return t_.records.empty() ? 1 : t_.records.rbegin()->first + 1;
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
