#include "scheduler/store/memory_record_store.h"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "absl/base/thread_annotations.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "base/clock.h"
#include "base/status_macros.h"
#include "base/vocabulary/choose_trials.h"
#include "base/vocabulary/target.h"
#include "proto/job_states.h"
#include "scheduler/store/memory_tables.h"

namespace heddle::scheduler {
namespace {

class MemoryRecordStore : public RecordStore {
 public:
  absl::StatusOr<std::vector<absl::Status>> Apply(absl::Span<const Batch> batches) override {
    absl::MutexLock lock(&mutex_);
    if (epoch_ > 0) {
      const LeaderRow& row = tables_.leaders[pool_];
      if (row.epoch != epoch_) return NotLeading(LeaderAt(row, MonotonicNow()), epoch_);
    }
    std::vector<absl::Status> results;
    for (const Batch& batch : batches) {
      MemoryWriter writer(&tables_);
      absl::Status status;
      for (const StoreChange& change : batch) {
        status = std::visit(writer, change);
        if (!status.ok()) break;
      }
      if (!status.ok()) writer.Undo();
      results.push_back(std::move(status));
    }
    return results;
  }

  absl::StatusOr<Leader> Lead(const LeaderClaim& claim) override {
    absl::MutexLock lock(&mutex_);
    const absl::Time now = MonotonicNow();
    LeaderRow& row = tables_.leaders[claim.pool];
    row = AfterClaim(row, claim, now);
    return LeaderAt(row, now);
  }
  absl::Status EndLead(const std::string& pool, int64_t epoch) override {
    absl::MutexLock lock(&mutex_);
    LeaderRow& row = tables_.leaders[pool];
    if (row.epoch != epoch) return absl::OkStatus();
    row.address.clear();
    row.lease = absl::ZeroDuration();
    return absl::OkStatus();
  }
  absl::StatusOr<Leader> LeaderOf(const std::string& pool) override {
    absl::MutexLock lock(&mutex_);
    return LeaderAt(tables_.leaders[pool], MonotonicNow());
  }
  void SetEpoch(const std::string& pool, int64_t epoch) override {
    absl::MutexLock lock(&mutex_);
    pool_ = pool;
    epoch_ = epoch;
  }
  // Nobody else can use a store in memory, so all have one name, and simulations repeat exactly.
  absl::StatusOr<std::string> Identity() override { return std::string(32, '0'); }

  absl::StatusOr<std::vector<StoredJob>> LoadJobs(const JobSelection& selection) override {
    absl::MutexLock lock(&mutex_);
    std::vector<StoredJob> jobs;
    for (const JobRow* selected : Select(selection)) {
      const JobRow& row = *selected;
      const int64_t id = row.id;
      const bool over = IsFinal(row.job.state());
      StoredJob job{row, {}, {}, {}};
      for (auto it = tables_.tasks.lower_bound({id, 0});
           it != tables_.tasks.end() && it->first.first == id; ++it) {
        job.tasks.push_back(it->second);
        auto state_of = tables_.states.find(it->first);
        job.states.push_back(state_of == tables_.states.end() ? "" : state_of->second);
      }
      for (auto it = tables_.candidates.lower_bound({id, 0});
           it != tables_.candidates.end() && it->first.first == id; ++it) {
        StoredCandidate candidate{it->second.row, "", 0};
        if (over) candidate.trace.clear();
        auto record = tables_.record_of.find(it->first);
        if (record != tables_.record_of.end()) {
          const v1::Record& measured = tables_.records.at(record->second).record;
          candidate.outcome = measured.measurement().outcome();
          candidate.median_ns = measured.median_ns();
          if (!over || candidate.outcome != v1::OUTCOME_OK) {
            candidate.message = measured.measurement().message();
            candidate.profile_ns = measured.measurement().profile_ns();
          }
          if (measured.has_retraction()) {
            candidate.outcome = v1::OUTCOME_LOST;
            candidate.median_ns = 0;
            candidate.message = absl::StrCat(kRetracted, measured.retraction().reason());
          }
        } else if (candidate.outcome && candidate.outcome != v1::OUTCOME_OK) {
          candidate.message = kRemoved;
        }
        job.candidates.push_back(std::move(candidate));
      }
      jobs.push_back(std::move(job));
    }
    return jobs;
  }

  absl::StatusOr<std::vector<JobOwner>> Owners(const JobSelection& selection) override {
    absl::MutexLock lock(&mutex_);
    std::vector<JobOwner> owners;
    for (const JobRow* row : Select(selection)) owners.push_back({row->id, row->job.spec().user()});
    return owners;
  }

  absl::StatusOr<int64_t> LastJob() override {
    absl::MutexLock lock(&mutex_);
    return tables_.jobs.empty() ? 0 : tables_.jobs.rbegin()->first;
  }

  absl::StatusOr<std::optional<JobRow>> FindSubmitted(const std::string& user,
                                                      const std::string& submit_key) override {
    absl::MutexLock lock(&mutex_);
    for (const auto& [id, row] : tables_.jobs) {
      if (row.submit_key == submit_key && row.job.spec().user() == user) return std::optional(row);
    }
    return std::optional<JobRow>();
  }

  absl::StatusOr<std::vector<JobBlobs>> BlobsOfJobs() override {
    absl::MutexLock lock(&mutex_);
    std::vector<JobBlobs> all;
    for (const auto& [id, row] : tables_.jobs) all.push_back(BlobsOf(row));
    return all;
  }

  absl::StatusOr<std::vector<FinishedJob>> Collectable() override {
    absl::MutexLock lock(&mutex_);
    std::vector<FinishedJob> found;
    for (const auto& [id, row] : tables_.jobs) {
      if (!IsFinal(row.job.state()) || row.job.collected_unix_ns() != 0) continue;
      found.push_back({id, row.job.spec().name(), row.job.finished_unix_ns(), BlobsOf(row)});
    }
    std::stable_sort(found.begin(), found.end(), [](const FinishedJob& a, const FinishedJob& b) {
      return a.finished_unix_ns < b.finished_unix_ns;
    });
    return found;
  }

  absl::StatusOr<Collection> CollectionOf(int64_t job, const CollectionPlace& after,
                                          int64_t limit) override {
    absl::MutexLock lock(&mutex_);
    Collection found{{job, {}, {}, {}}, 0, std::nullopt};
    CollectionPlace place = after;
    std::set<std::string> live;  // workloads
    for (const auto& [key, task] : tables_.tasks) {
      if (!IsFinal(tables_.jobs.at(key.first).job.state())) live.insert(task.info.key());
    }
    int64_t looked = 0;
    for (auto it = tables_.candidates.upper_bound({job, after.candidate});
         it != tables_.candidates.end() && it->first.first == job && looked < limit; ++it) {
      ++looked;
      place.candidate = it->first.second;
      const std::string& trace = it->second.row.trace;
      if (!trace.empty()) {
        found.rows.candidates.push_back(it->first.second);
        found.bytes += static_cast<int64_t>(trace.size());
      }
      const auto of = tables_.record_of.find(it->first);
      if (of == tables_.record_of.end()) continue;
      const v1::Record& record = tables_.records.at(of->second).record;
      const bool best = !record.has_retraction() && IsBest({}, of->second);
      if (best || live.count(record.workload_key()) > 0) continue;
      found.rows.records.push_back(of->second);
      const v1::Measurement& measured = record.measurement();
      found.bytes +=
          static_cast<int64_t>(measured.ByteSizeLong() - Thinned(measured).ByteSizeLong());
    }
    std::map<std::pair<int64_t, int64_t>, const StageRow*> stages;  // by start and attempt
    for (const auto& [attempt, row] : tables_.stages) {
      const std::pair at(row.span.start_unix_ns(), attempt);
      if (ParseJobName(row.span.job()) == job && at > std::pair(after.start_unix_ns, after.attempt))
        stages[at] = &row;
    }
    for (const auto& [at, row] : stages) {
      if (looked == limit) break;
      ++looked;
      std::tie(place.start_unix_ns, place.attempt) = at;
      if (at.second == tables_.stages.rbegin()->first || row->span.end_unix_ns() == 0) continue;
      found.rows.attempts.push_back(at.second);
      found.bytes += static_cast<int64_t>(row->span.ByteSizeLong());
    }
    if (looked == limit) found.last = place;
    if (after.candidate != 0 || after.attempt != 0) return found;
    for (const auto& [key, state] : tables_.states) {
      if (key.first == job) found.bytes += static_cast<int64_t>(state.size());
    }
    for (const auto& [key, report] : tables_.reports) {
      if (key.first == job) found.bytes += static_cast<int64_t>(report.ByteSizeLong());
    }
    return found;
  }

  absl::StatusOr<OldRecords> FindOldRecords(const OldRecordRule& rule,
                                            const std::optional<OldRecordPlace>& after,
                                            int64_t limit) override {
    absl::MutexLock lock(&mutex_);
    return OldRecordsOf(tables_, rule, after, limit);
  }

  absl::StatusOr<std::vector<StageRow>> UnfinishedStages() override {
    absl::MutexLock lock(&mutex_);
    std::vector<StageRow> rows;
    for (const auto& [attempt, row] : tables_.stages) {
      if (row.span.end_unix_ns() == 0) rows.push_back(row);
    }
    return rows;
  }

  absl::StatusOr<int64_t> LastAttempt() override {
    absl::MutexLock lock(&mutex_);
    return tables_.stages.empty() ? 0 : tables_.stages.rbegin()->first;
  }

  absl::StatusOr<std::map<SlotId, uint64_t>> Fences() override {
    absl::MutexLock lock(&mutex_);
    return tables_.fences;
  }

  absl::StatusOr<std::vector<v1::StageSpan>> Timeline(int64_t job, int64_t since_unix_ns,
                                                      int64_t limit) override {
    absl::MutexLock lock(&mutex_);
    std::vector<v1::StageSpan> spans;
    for (const auto& [attempt, row] : tables_.stages) {
      if (ParseJobName(row.span.job()) == job && row.span.start_unix_ns() >= since_unix_ns)
        spans.push_back(row.span);
    }
    std::stable_sort(spans.begin(), spans.end(),
                     [](const v1::StageSpan& a, const v1::StageSpan& b) {
                       return a.start_unix_ns() < b.start_unix_ns();
                     });
    if (static_cast<int64_t>(spans.size()) > limit) spans.erase(spans.begin(), spans.end() - limit);
    return spans;
  }

  absl::StatusOr<std::vector<v1::Record>> Query(const v1::RecordQuery& query) override {
    HEDDLE_ASSIGN_OR_RETURN(RecordPage page, QueryPage(query, std::nullopt, QueryLimit(query)));
    for (v1::Record& record : page.records) record.mutable_measurement()->clear_loops();
    return std::move(page.records);
  }

  absl::StatusOr<RecordPage> QueryPage(const v1::RecordQuery& query,
                                       const std::optional<RecordPlace>& after,
                                       int64_t limit) override {
    absl::MutexLock lock(&mutex_);
    std::vector<RecordPlace> found;
    for (auto group = tables_.ids_of.lower_bound({query.workload_key(), "", ""});
         group != tables_.ids_of.end(); ++group) {
      if (!query.workload_key().empty() && group->first.key != query.workload_key()) break;
      for (const int64_t id : group->second) {
        const MemoryTables::StoredRecord& stored = tables_.records.at(id);
        const RecordPlace place{stored.record.created_unix_ns(), id};
        if ((!after || Follows(place, *after)) && Matches(query, id, stored) &&
            (!query.best_only() || IsBest(query, id)))
          found.push_back(place);
      }
    }
    std::sort(found.begin(), found.end(),
              [](const RecordPlace& a, const RecordPlace& b) { return Follows(b, a); });
    RecordPage page;
    if (static_cast<int64_t>(found.size()) >= limit) {
      found.resize(static_cast<size_t>(limit));
      if (!found.empty()) page.last = found.back();
    }
    for (const RecordPlace& place : found) {
      const MemoryTables::StoredRecord& stored = tables_.records.at(place.id);
      v1::Record record = stored.record;
      record.set_id(place.id);
      const MemoryTables::Workload& workload = tables_.workloads.at(record.workload_key());
      record.set_workload(query.with_workload() ? workload.text : "");
      record.set_label(workload.label);
      record.set_flops(workload.flops);
      if (stored.imported) {
        record.clear_candidate();
        record.clear_attempt();
      }
      record.clear_origin();
      record.clear_prediction();
      auto candidate = tables_.candidates.find({ParseJobName(record.job()), record.candidate()});
      if (!stored.imported && candidate != tables_.candidates.end()) {
        record.set_origin(candidate->second.row.origin);
        if (candidate->second.prediction)
          *record.mutable_prediction() = *candidate->second.prediction;
      }
      page.records.push_back(std::move(record));
    }
    return page;
  }

  absl::StatusOr<TrialSample> SampleTrials(const WorkloadId& id, int64_t most) override {
    absl::MutexLock lock(&mutex_);
    std::vector<int64_t> trials;  // records
    std::vector<double> medians;
    for (const auto& [number, stored] : tables_.records) {
      const v1::Record& record = stored.record;
      const v1::Outcome outcome = record.measurement().outcome();
      if (record.workload_key() != id.key || record.target() != id.target ||
          record.device_key() != id.device_key || outcome == v1::OUTCOME_LOST ||
          record.has_retraction())
        continue;
      trials.push_back(number);
      medians.push_back(outcome == v1::OUTCOME_OK ? record.median_ns() : 0);
    }
    TrialSample sample;
    sample.all = static_cast<int64_t>(trials.size());
    for (const ChosenTrial& chosen : ChooseTrials(medians, most)) {
      const MemoryTables::StoredRecord& stored = tables_.records.at(trials[chosen.index]);
      TrialPoint& point = sample.points.emplace_back();
      point.number = static_cast<int64_t>(chosen.index) + 1;
      point.id = trials[chosen.index];
      point.created_unix_ns = stored.record.created_unix_ns();
      point.median_ns = medians[chosen.index];
      point.fastest_so_far = chosen.fastest_so_far;
      if (stored.imported) continue;
      point.job = stored.record.job();
      const auto candidate =
          tables_.candidates.find({ParseJobName(point.job), stored.record.candidate()});
      if (candidate != tables_.candidates.end()) point.origin = candidate->second.row.origin;
    }
    return sample;
  }

  absl::StatusOr<std::vector<v1::StageSpan>> LatestStages(int64_t first_attempt,
                                                          int64_t limit) override {
    absl::MutexLock lock(&mutex_);
    std::vector<v1::StageSpan> spans;
    for (auto it = tables_.stages.rbegin();
         it != tables_.stages.rend() && static_cast<int64_t>(spans.size()) < limit; ++it) {
      const v1::StageSpan& span = it->second.span;
      if (span.attempt_id() >= first_attempt) spans.push_back(span);
    }
    std::reverse(spans.begin(), spans.end());
    return spans;
  }

  absl::StatusOr<std::vector<WorkloadName>> FindWorkloads(const std::string& text,
                                                          const std::string& after,
                                                          int64_t limit) override {
    absl::MutexLock lock(&mutex_);
    std::set<std::string> recorded;
    for (const auto& [id, stored] : tables_.records) recorded.insert(stored.record.workload_key());
    const std::string wanted = absl::AsciiStrToLower(text);
    std::vector<WorkloadName> found;
    for (auto it = tables_.workloads.upper_bound(after);
         it != tables_.workloads.end() && static_cast<int64_t>(found.size()) < limit; ++it) {
      const auto& [key, workload] = *it;
      const bool matches = absl::StrContains(absl::AsciiStrToLower(workload.label), wanted) ||
                           key.starts_with(wanted);
      if (matches && recorded.contains(key)) found.push_back({key, workload.label, workload.flops});
    }
    return found;
  }

  absl::StatusOr<std::vector<DevicePair>> CompareDevices(const std::string& device_a,
                                                         const std::string& device_b,
                                                         int64_t limit) override {
    absl::MutexLock lock(&mutex_);
    std::map<std::string, DevicePair> by_key;
    for (const auto& [id, stored] : tables_.records) {
      const v1::Record& record = stored.record;
      if (record.measurement().outcome() != v1::OUTCOME_OK || record.has_retraction()) continue;
      DevicePair& pair = by_key[record.workload_key()];
      for (const auto& [device, best] :
           {std::pair{&device_a, &pair.a}, std::pair{&device_b, &pair.b}}) {
        if (record.device_key() != *device) continue;
        if (best->target.empty() || record.median_ns() < best->median_ns)
          *best = {record.median_ns(), record.target()};
      }
    }
    std::vector<DevicePair> pairs;
    int64_t seen = 0;
    for (const auto& [key, workload] : tables_.workloads) {
      if (++seen > limit) break;
      const auto found = by_key.find(key);
      if (found == by_key.end()) continue;
      DevicePair& pair = found->second;
      if (pair.a.target.empty() || pair.b.target.empty()) continue;
      pair.name = {key, workload.label, workload.flops};
      pairs.push_back(std::move(pair));
    }
    return pairs;
  }

  absl::StatusOr<KnownRecords> Known(const WorkloadId& id) override {
    absl::MutexLock lock(&mutex_);
    KnownRecords known;
    auto faster = [](double best, double now) { return best == 0 ? now : std::min(best, now); };
    const auto ids = tables_.ids_of.find(id);
    if (ids == tables_.ids_of.end()) return known;
    for (const int64_t number : ids->second) {
      const MemoryTables::StoredRecord& stored = tables_.records.at(number);
      const v1::Record& record = stored.record;
      const v1::Outcome outcome = record.measurement().outcome();
      if (outcome == v1::OUTCOME_LOST || record.has_retraction()) continue;
      ++known.total;
      if (outcome != v1::OUTCOME_OK) continue;
      ++known.valid;
      known.best_ns = faster(known.best_ns, record.median_ns());
      auto candidate = tables_.candidates.find({ParseJobName(record.job()), record.candidate()});
      if (!stored.imported && candidate != tables_.candidates.end() &&
          candidate->second.row.origin == "default") {
        known.untuned_ns = faster(known.untuned_ns, record.median_ns());
      }
    }
    return known;
  }

  absl::StatusOr<std::optional<v1::Record>> BestMeasured(const WorkloadId& id) override {
    v1::RecordQuery query;
    query.set_workload_key(id.key);
    query.set_target(id.target);
    query.set_device_key(id.device_key);
    query.set_valid_only(true);
    HEDDLE_ASSIGN_OR_RETURN(const RecordPage page,
                            QueryPage(query, std::nullopt, std::numeric_limits<int64_t>::max()));
    std::optional<v1::Record> best;
    for (const v1::Record& record : page.records) {
      if (!record.imported_by().empty()) continue;
      const auto rank = [](const v1::Record& of) { return std::pair(of.median_ns(), of.id()); };
      if (!best || rank(record) < rank(*best)) best = record;
    }
    return best;
  }

  absl::StatusOr<std::optional<v1::SearchReport>> Report(int64_t job, int32_t task) override {
    absl::MutexLock lock(&mutex_);
    const auto found = tables_.reports.find({job, task});
    if (found == tables_.reports.end()) return std::optional<v1::SearchReport>();
    return std::optional<v1::SearchReport>(found->second);
  }

  absl::StatusOr<std::vector<TransferSamples>> FindRelatedSamples(const WorkloadId& id,
                                                                  int64_t limit) override {
    absl::MutexLock lock(&mutex_);
    std::vector<decltype(tables_.transfer_samples)::const_iterator> found;
    // Each target and device key gives the samples of the search's own workload, and the newest ones of other workloads.
    for (const auto& [place, newest] : tables_.newest_samples) {
      const auto& [target, device_key] = place;
      const auto add = [&](const std::string& key) {
        const WorkloadId its{key, target, device_key};
        if (RelatednessOf(its, id) == Relatedness::kNone) return false;
        const auto samples = tables_.transfer_samples.find(its);
        if (samples == tables_.transfer_samples.end()) return false;
        found.push_back(samples);
        return true;
      };
      (void)add(id.key);
      int64_t added = 0;
      for (auto one = newest.begin(); one != newest.end() && added < limit; ++one) {
        if (one->second == id.key) continue;
        if (!add(one->second)) break;  // the target is of another kind, and so are all of it
        ++added;
      }
    }
    std::sort(found.begin(), found.end(), [&](const auto& a, const auto& b) {
      if (Nearer(a->first, b->first, id)) return true;
      if (Nearer(b->first, a->first, id)) return false;
      return std::tuple(-a->second.first, a->first) < std::tuple(-b->second.first, b->first);
    });
    if (static_cast<int64_t>(found.size()) > limit) found.resize(static_cast<size_t>(limit));
    std::vector<TransferSamples> transfer_samples;
    for (const auto& one : found) transfer_samples.push_back({one->first, one->second.second});
    return transfer_samples;
  }

  absl::StatusOr<std::vector<TransferSamples>> SamplesAfter(const std::string& kind,
                                                            const std::optional<WorkloadId>& after,
                                                            int64_t limit) override {
    absl::MutexLock lock(&mutex_);
    std::vector<TransferSamples> found;
    const auto& all = tables_.transfer_samples;
    for (auto it = after ? all.upper_bound(*after) : all.begin();
         it != all.end() && static_cast<int64_t>(found.size()) < limit; ++it) {
      if (KindOf(it->first.target) == kind) found.push_back({it->first, it->second.second});
    }
    return found;
  }

  absl::StatusOr<std::map<TransferModelId, v1::TransferModel>> AllTransferModels() override {
    absl::MutexLock lock(&mutex_);
    return tables_.transfer_models.all();
  }

  absl::StatusOr<std::map<std::string, std::string>> Machines() override {
    absl::MutexLock lock(&mutex_);
    std::map<std::string, std::string> machines = tables_.machines;
    std::erase_if(machines, [](const auto& entry) { return entry.second.empty(); });
    return machines;
  }

  absl::StatusOr<Experience> FindExperience(const std::string& target,
                                            const std::string& device_key, int64_t limit) override {
    absl::MutexLock lock(&mutex_);
    using Made = std::pair<int64_t, const v1::KernelFactor*>;  // when, and what
    std::vector<Made> device, others;
    for (const auto& [id, made] : tables_.factors) {
      const bool same = id.target == target && id.device_key == device_key;
      if (same) device.emplace_back(made.first, &made.second);
      if (!same && KindOf(id.target) == KindOf(target))
        others.emplace_back(made.first, &made.second);
    }
    const auto newest = [&](std::vector<Made> made) {
      std::stable_sort(made.begin(), made.end(),
                       [](const Made& a, const Made& b) { return a.first > b.first; });
      std::vector<v1::KernelFactor> factors;
      for (const Made& one : made) {
        if (static_cast<int64_t>(factors.size()) == limit) break;
        factors.push_back(*one.second);
      }
      return factors;
    };
    return Experience{newest(std::move(device)), newest(std::move(others))};
  }

  absl::StatusOr<std::vector<std::string>> DeviceKeys(const std::string& target) override {
    absl::MutexLock lock(&mutex_);
    std::map<std::string, int> counts;
    for (const auto& [id, stored] : tables_.records) {
      if (stored.record.target() == target && !stored.record.has_retraction())
        ++counts[stored.record.device_key()];
    }
    std::vector<std::string> keys;
    for (const auto& [key, count] : counts) keys.push_back(key);
    std::stable_sort(keys.begin(), keys.end(), [&](const std::string& a, const std::string& b) {
      return counts.at(a) > counts.at(b);
    });
    return keys;
  }

 private:
  // By id.
  std::vector<const JobRow*> Select(const JobSelection& selection) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    std::vector<const JobRow*> rows;
    for (auto entry = tables_.jobs.rbegin(); entry != tables_.jobs.rend(); ++entry) {
      const auto& [id, row] = *entry;
      const bool selected =
          selection.which == JobSelection::kAll ||
          IsFinal(row.job.state()) == (selection.which == JobSelection::kFinished);
      if (!selected || id >= selection.before) continue;
      if (static_cast<int64_t>(rows.size()) == selection.limit) break;
      rows.push_back(&row);
    }
    std::reverse(rows.begin(), rows.end());
    return rows;
  }

  // Whether `place` comes after `other` in the order of queries: newest first.
  static bool Follows(const RecordPlace& place, const RecordPlace& other) {
    return std::tie(place.created_unix_ns, place.id) < std::tie(other.created_unix_ns, other.id);
  }

  static bool Matches(const v1::RecordQuery& query, int64_t id,
                      const MemoryTables::StoredRecord& stored) {
    const v1::Record& record = stored.record;
    auto field = [](const std::string& wanted, const std::string& is) {
      return wanted.empty() || wanted == is;
    };
    const bool job = query.job().empty() || (!stored.imported && query.job() == record.job());
    const bool shown = !record.has_retraction() || (query.retracted() && !query.best_only());
    const bool numbered = query.id() == 0 || query.id() == id;
    const std::string& worker = record.measurement().evidence().worker();
    return job && shown && numbered && field(query.worker(), stored.imported ? "" : worker) &&
           field(query.imported_by(), record.imported_by()) &&
           field(query.workload_key(), record.workload_key()) &&
           field(query.target(), record.target()) &&
           field(query.device_key(), record.device_key()) &&
           (!query.valid_only() || record.measurement().outcome() == v1::OUTCOME_OK);
  }

  bool IsBest(const v1::RecordQuery& query, int64_t id) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const v1::Record& record = tables_.records.at(id).record;
    if (record.measurement().outcome() != v1::OUTCOME_OK) return false;
    const WorkloadId group{record.workload_key(), record.target(), record.device_key()};
    for (const int64_t other_id : tables_.ids_of.at(group)) {
      const MemoryTables::StoredRecord& stored = tables_.records.at(other_id);
      const v1::Record& other = stored.record;
      if (other.measurement().outcome() != v1::OUTCOME_OK || !Matches(query, other_id, stored))
        continue;
      if (other.median_ns() < record.median_ns() ||
          (other.median_ns() == record.median_ns() && other_id < id))
        return false;
    }
    return true;
  }

  absl::Mutex mutex_;
  MemoryTables tables_ ABSL_GUARDED_BY(mutex_);
  std::string pool_ ABSL_GUARDED_BY(mutex_);
  int64_t epoch_ ABSL_GUARDED_BY(mutex_) = 0;  // 0: Apply checks none
};

}  // namespace

std::unique_ptr<RecordStore> MakeMemoryRecordStore() {
  return std::make_unique<MemoryRecordStore>();
}

}  // namespace heddle::scheduler
