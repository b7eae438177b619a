#include "scheduler/memory_record_store.h"

#include <algorithm>
#include <functional>
#include <map>
#include <set>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"

namespace heddle::scheduler {
namespace {

struct StoredRecord {
  v1::Record record;
  bool imported = false;
};

struct Workload {
  std::string text, label;
  double flops = 0;
};

// Everything there is.
struct Tables {
  std::map<int64_t, JobRow> jobs;
  std::map<std::pair<int64_t, int32_t>, TaskRow> tasks;
  std::map<std::pair<int64_t, int32_t>, std::string> states;
  std::map<std::pair<int64_t, int32_t>, v1::SearchReport> reports;
  std::map<WorkloadId, std::pair<int64_t, v1::Experience>> experience;  // when it was made, and it
  std::map<std::pair<int64_t, int64_t>, CandidateRow> candidates;
  std::map<std::string, Workload> workloads;
  std::vector<StoredRecord> records;
  std::map<std::pair<int64_t, int64_t>, size_t> record_of;  // job, candidate
  std::set<std::string> digests;
  std::map<int64_t, StageRow> stages;
  std::map<std::pair<std::string, std::string>, uint64_t> fences;
};

// Applies the changes of one batch and notes how to take them back.
class Writer {
 public:
  explicit Writer(Tables* tables) : t_(*tables) {}

  absl::Status operator()(const PutJob& change) { return Put(&t_.jobs, change.row.id, change.row); }

  absl::Status operator()(const PutTask& change) {
    if (!t_.jobs.count(change.row.job))
      return absl::AlreadyExistsError("the task's job is not there");
    AddWorkload(change.row.info.key(),
                {change.row.info.workload(), change.row.info.label(), change.row.info.flops()});
    return Put(&t_.tasks, std::make_pair(change.row.job, change.row.index), change.row);
  }

  absl::Status operator()(const PutSearchState& change) {
    const auto key = std::make_pair(change.job, change.task);
    return t_.tasks.count(key) ? Put(&t_.states, key, change.state) : absl::OkStatus();
  }

  absl::Status operator()(const PutLearned& change) {
    const auto key = std::make_pair(change.job, change.task);
    if (t_.tasks.count(key)) (void)Put(&t_.reports, key, change.report);
    if (!t_.workloads.count(change.workload.key)) return absl::OkStatus();
    const auto old = t_.experience.find(change.workload);
    const bool replaces = Replaces(
        change.experience, old == t_.experience.end() ? v1::Experience() : old->second.second);
    if (!replaces) return absl::OkStatus();
    return Put(&t_.experience, change.workload, {change.made_unix_ns, change.experience});
  }

  absl::Status operator()(const InsertCandidate& change) {
    const auto key = std::make_pair(change.row.job, change.row.id);
    if (!t_.tasks.count({change.row.job, change.row.task})) {
      return absl::AlreadyExistsError("the candidate's task is not there");
    }
    if (t_.candidates.count(key)) return absl::AlreadyExistsError("the candidate is there already");
    return Put(&t_.candidates, key, change.row);
  }

  absl::Status operator()(const PutAttempts& change) {
    auto it = t_.candidates.find({change.job, change.candidate});
    if (it == t_.candidates.end()) return absl::OkStatus();
    CandidateRow row = it->second;
    row.attempts = change.attempts;
    return Put(&t_.candidates, it->first, std::move(row));
  }

  absl::Status operator()(const LearnTask& change) {
    for (auto& [key, candidate] : t_.candidates) {
      if (key.first != change.job || key.second >= change.before || candidate.task != change.task ||
          !t_.record_of.count(key))
        continue;
      CandidateRow row = candidate;
      row.learned = true;
      (void)Put(&t_.candidates, key, std::move(row));
    }
    return absl::OkStatus();
  }

  absl::Status operator()(const InsertRecord& change) {
    StoredRecord stored{change.record, change.imported};
    v1::Record& record = stored.record;
    const std::string digest = RecordDigest(record);
    if (change.imported) {
      if (t_.digests.count(digest)) return absl::AlreadyExistsError("the record is there already");
    } else {
      if (absl::Status fenced = Fence(change); !fenced.ok()) return fenced;
      const auto key = std::make_pair(ParseJobName(record.job()), record.candidate());
      if (t_.record_of.count(key)) return absl::AlreadyExistsError("the candidate has its record");
      (void)Put(&t_.record_of, key, t_.records.size());
    }
    record.set_median_ns(Median(
        {record.measurement().samples_ns().begin(), record.measurement().samples_ns().end()}));
    AddWorkload(record.workload_key(), {record.workload(), record.label(), record.flops()});
    if (t_.digests.insert(digest).second) {
      undo_.push_back([this, digest] { t_.digests.erase(digest); });
    }
    t_.records.push_back(std::move(stored));
    undo_.push_back([this] { t_.records.pop_back(); });
    return absl::OkStatus();
  }

  absl::Status operator()(const PutStage& change) {
    return Put(&t_.stages, change.row.span.attempt_id(), change.row);
  }

  void Undo() {
    for (auto step = undo_.rbegin(); step != undo_.rend(); ++step) (*step)();
  }

 private:
  template <typename Map>
  absl::Status Put(Map* map, typename Map::key_type key, typename Map::mapped_type value) {
    auto it = map->find(key);
    if (it == map->end()) {
      undo_.push_back([map, key] { map->erase(key); });
      map->emplace(std::move(key), std::move(value));
    } else {
      undo_.push_back([map, key, before = it->second] { (*map)[key] = before; });
      it->second = std::move(value);
    }
    return absl::OkStatus();
  }

  void AddWorkload(const std::string& key, Workload workload) {
    auto it = t_.workloads.find(key);
    const bool brings_text =
        it != t_.workloads.end() && it->second.text.empty() && !workload.text.empty();
    if (it == t_.workloads.end() || brings_text) (void)Put(&t_.workloads, key, std::move(workload));
  }

  absl::Status Fence(const InsertRecord& change) {
    const v1::Evidence& evidence = change.record.measurement().evidence();
    if (evidence.slot().empty()) return absl::OkStatus();
    const auto key = std::make_pair(evidence.worker(), evidence.slot());
    auto seen = t_.fences.find(key);
    if (seen != t_.fences.end() && change.fencing_token < seen->second) {
      return absl::FailedPreconditionError(
          absl::StrCat("fencing token ", change.fencing_token, " is older than ", seen->second));
    }
    return Put(&t_.fences, key, change.fencing_token);
  }

  Tables& t_;
  std::vector<std::function<void()>> undo_;
};

class MemoryRecordStore : public RecordStore {
 public:
  absl::StatusOr<std::vector<absl::Status>> Apply(absl::Span<const Batch> batches) override {
    absl::MutexLock lock(&mutex_);
    std::vector<absl::Status> results;
    for (const Batch& batch : batches) {
      Writer writer(&tables_);
      absl::Status status;
      for (const Change& change : batch) {
        status = std::visit(writer, change);
        if (!status.ok()) break;
      }
      if (!status.ok()) writer.Undo();
      results.push_back(std::move(status));
    }
    return results;
  }

  absl::StatusOr<std::vector<StoredJob>> LoadJobs() override {
    absl::MutexLock lock(&mutex_);
    std::vector<StoredJob> jobs;
    for (const auto& [id, row] : tables_.jobs) {
      StoredJob job{row, {}, {}, {}};
      const v1::JobState state = row.job.state();
      const bool over =
          state == v1::JOB_DONE || state == v1::JOB_FAILED || state == v1::JOB_CANCELLED;
      for (auto it = tables_.tasks.lower_bound({id, 0});
           it != tables_.tasks.end() && it->first.first == id; ++it) {
        job.tasks.push_back(it->second);
        auto state_of = tables_.states.find(it->first);
        job.states.push_back(state_of == tables_.states.end() ? "" : state_of->second);
      }
      for (auto it = tables_.candidates.lower_bound({id, 0});
           it != tables_.candidates.end() && it->first.first == id; ++it) {
        CandidateRow candidate = it->second;
        if (over) candidate.trace.clear();
        candidate.prediction.reset();
        auto record = tables_.record_of.find(it->first);
        if (record != tables_.record_of.end()) {
          const v1::Record& measured = tables_.records[record->second].record;
          candidate.outcome = measured.measurement().outcome();
          candidate.median_ns = measured.median_ns();
          candidate.message = measured.measurement().message();
          candidate.profile_ns = measured.measurement().profile_ns();
        }
        job.candidates.push_back(std::move(candidate));
      }
      jobs.push_back(std::move(job));
    }
    return jobs;
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
    std::map<SlotId, uint64_t> fences;
    for (const auto& [slot, token] : tables_.fences) fences[{slot.first, slot.second}] = token;
    return fences;
  }

  absl::StatusOr<std::vector<v1::StageSpan>> Timeline(int64_t job, int64_t limit) override {
    absl::MutexLock lock(&mutex_);
    std::vector<v1::StageSpan> spans;
    for (const auto& [attempt, row] : tables_.stages) {
      if (ParseJobName(row.span.job()) == job) spans.push_back(row.span);
    }
    std::stable_sort(spans.begin(), spans.end(),
                     [](const v1::StageSpan& a, const v1::StageSpan& b) {
                       return a.start_unix_ns() < b.start_unix_ns();
                     });
    if (static_cast<int64_t>(spans.size()) > limit) spans.erase(spans.begin(), spans.end() - limit);
    return spans;
  }

  absl::StatusOr<std::vector<v1::Record>> Query(const v1::RecordQuery& query) override {
    absl::MutexLock lock(&mutex_);
    std::vector<size_t> found;
    for (size_t i = 0; i < tables_.records.size(); ++i) {
      if (Matches(query, tables_.records[i]) && (!query.best_only() || IsBest(i)))
        found.push_back(i);
    }
    std::stable_sort(found.begin(), found.end(),
                     [this](size_t a, size_t b) ABSL_NO_THREAD_SAFETY_ANALYSIS {
                       const int64_t time_a = tables_.records[a].record.created_unix_ns();
                       const int64_t time_b = tables_.records[b].record.created_unix_ns();
                       return time_a != time_b ? time_a > time_b : a > b;
                     });
    const auto limit = static_cast<size_t>(QueryLimit(query));
    if (found.size() > limit) found.resize(limit);
    std::vector<v1::Record> records;
    for (size_t index : found) {
      v1::Record record = tables_.records[index].record;
      const Workload& workload = tables_.workloads.at(record.workload_key());
      record.set_workload(query.with_workload() ? workload.text : "");
      record.set_label(workload.label);
      record.set_flops(workload.flops);
      if (tables_.records[index].imported) {
        record.clear_candidate();
        record.clear_attempt();
      }
      record.clear_origin();
      record.clear_prediction();
      auto candidate = tables_.candidates.find({ParseJobName(record.job()), record.candidate()});
      if (!tables_.records[index].imported && candidate != tables_.candidates.end()) {
        record.set_origin(candidate->second.origin);
        if (candidate->second.prediction)
          *record.mutable_prediction() = *candidate->second.prediction;
      }
      records.push_back(std::move(record));
    }
    return records;
  }

  absl::StatusOr<KnownRecords> Known(const WorkloadId& id) override {
    absl::MutexLock lock(&mutex_);
    KnownRecords known;
    auto faster = [](double best, double now) { return best == 0 ? now : std::min(best, now); };
    for (const StoredRecord& stored : tables_.records) {
      const v1::Record& record = stored.record;
      const v1::Outcome outcome = record.measurement().outcome();
      if (record.workload_key() != id.key || record.target() != id.target ||
          record.device_key() != id.device_key || outcome == v1::OUTCOME_LOST) {
        continue;
      }
      ++known.total;
      if (outcome != v1::OUTCOME_OK) continue;
      ++known.valid;
      known.best_ns = faster(known.best_ns, record.median_ns());
      auto candidate = tables_.candidates.find({ParseJobName(record.job()), record.candidate()});
      if (!stored.imported && candidate != tables_.candidates.end() &&
          candidate->second.origin == "default") {
        known.untuned_ns = faster(known.untuned_ns, record.median_ns());
      }
    }
    return known;
  }

  absl::StatusOr<std::optional<v1::SearchReport>> Report(int64_t job, int32_t task) override {
    absl::MutexLock lock(&mutex_);
    const auto found = tables_.reports.find({job, task});
    if (found == tables_.reports.end()) return std::optional<v1::SearchReport>();
    return std::optional<v1::SearchReport>(found->second);
  }

  absl::StatusOr<std::vector<Experience>> OthersExperience(const WorkloadId& id,
                                                           int64_t limit) override {
    absl::MutexLock lock(&mutex_);
    std::vector<std::pair<int64_t, Experience>> found;  // when it was made, and it
    for (const auto& [workload, made] : tables_.experience) {
      if (KinshipOf(workload, id) != Kinship::kNone)
        found.push_back({made.first, {workload, made.second}});
    }
    std::stable_sort(found.begin(), found.end(), [&](const auto& a, const auto& b) {
      const WorkloadId &x = a.second.workload, &y = b.second.workload;
      return Nearer(x, y, id) || (!Nearer(y, x, id) && a.first > b.first);
    });
    if (static_cast<int64_t>(found.size()) > limit) found.resize(static_cast<size_t>(limit));
    std::vector<Experience> experiences;
    for (auto& one : found) experiences.push_back(std::move(one.second));
    return experiences;
  }

  absl::StatusOr<std::vector<std::string>> DeviceKeys(const std::string& target) override {
    absl::MutexLock lock(&mutex_);
    std::map<std::string, int> counts;
    for (const StoredRecord& stored : tables_.records) {
      if (stored.record.target() == target) ++counts[stored.record.device_key()];
    }
    std::vector<std::string> keys;
    for (const auto& [key, count] : counts) keys.push_back(key);
    std::stable_sort(keys.begin(), keys.end(), [&](const std::string& a, const std::string& b) {
      return counts.at(a) > counts.at(b);
    });
    return keys;
  }

 private:
  static bool Matches(const v1::RecordQuery& query, const StoredRecord& stored) {
    const v1::Record& record = stored.record;
    auto field = [](const std::string& wanted, const std::string& is) {
      return wanted.empty() || wanted == is;
    };
    const bool job = query.job().empty() || (!stored.imported && query.job() == record.job());
    return job && field(query.workload_key(), record.workload_key()) &&
           field(query.target(), record.target()) &&
           field(query.device_key(), record.device_key()) &&
           (!query.valid_only() || record.measurement().outcome() == v1::OUTCOME_OK);
  }

  bool IsBest(size_t index) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const v1::Record& record = tables_.records[index].record;
    if (record.measurement().outcome() != v1::OUTCOME_OK) return false;
    for (size_t i = 0; i < tables_.records.size(); ++i) {
      const v1::Record& other = tables_.records[i].record;
      if (other.workload_key() != record.workload_key() || other.target() != record.target() ||
          other.device_key() != record.device_key() ||
          other.measurement().outcome() != v1::OUTCOME_OK) {
        continue;
      }
      if (other.median_ns() < record.median_ns() ||
          (other.median_ns() == record.median_ns() && i < index))
        return false;
    }
    return true;
  }

  absl::Mutex mutex_;
  Tables tables_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

std::unique_ptr<RecordStore> MakeMemoryRecordStore() {
  return std::make_unique<MemoryRecordStore>();
}

}  // namespace heddle::scheduler
