// Everything the scheduler must not forget: jobs, tasks, candidates, records, the history of
// stages. One writer: the scheduler; others ask it over gRPC. SqliteRecordStore keeps it on disk,
// MemoryRecordStore in a process (for simulations); tests/scheduler/store/record_store_test.cc
// holds both to the same promises.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/limits.h"
#include "proto/jobs.pb.h"
#include "proto/worker.pb.h"
#include "scheduler/core/ids.h"

namespace heddle::scheduler {

struct JobRow {
  int64_t id = 0;
  v1::Job job;  // without tasks; `state` is never JOB_PAUSED: that is `paused`
  bool paused = false;
  std::string device_key;  // what the job is pinned to; empty: any
};

struct TaskRow {
  int64_t job = 0;
  int32_t index = 0;
  v1::TaskInfo info;
  int32_t budget = 0;
  int32_t known = 0;
  int32_t known_valid = 0;
  bool done = false;
  bool exhausted = false;
  bool warm_pending = false;
  double known_best_ns = 0;  // of the database at the start
  double known_untuned_ns = 0;
};

struct CandidateRow {
  int64_t job = 0;
  int64_t id = 0;
  int32_t task = 0;
  std::string trace;
  std::string origin;
  int32_t attempts = 0;  // infrastructure faults so far
  bool learned = false;  // the search state has taken it in
  // Of its final record; set by the store when loading.
  std::optional<v1::Outcome> outcome;
  double median_ns = 0;
  std::string message;
  int64_t profile_ns = 0;
  std::optional<v1::Prediction> prediction{};  // LoadJobs leaves it out
};

struct StageRow {
  v1::StageSpan span;
  std::string lease_id;
};

struct WorkloadId {
  std::string key;
  std::string target;
  std::string device_key;
  auto operator<=>(const WorkloadId&) const = default;
};

// What a search of the workload learned (cost_model/transfer/transfer_samples.h).
struct TransferSamples {
  WorkloadId workload;
  v1::TransferSamples learned;
};

// What transfer samples may be worth to a search.
enum class Relatedness {
  kNone,    // it is its own, or of another kind of target
  kTarget,  // of the same kind of target on another device key
  kDevice,  // on the same device key, but another target: another number of threads, say
  kSame,    // of another workload on the same target and device key
};
Relatedness RelatednessOf(const WorkloadId& transfer_samples, const WorkloadId& search);
// Whether a search begins with transfer samples of `a` rather than of `b`: that of its own workload
// first, then by relatedness. (Of one network's other tasks alone there are more than a search is
// told.)
bool Nearer(const WorkloadId& a, const WorkloadId& b, const WorkloadId& search);

// ---- changes ----
struct PutJob {
  JobRow row;
};  // inserts or replaces
struct PutTask {
  TaskRow row;
};  // inserts or replaces; keeps the search state
// Refuses the batch with FailedPrecondition if the token is older than one seen for the slot. The
// first change of a batch that commits what a propose or update stage made.
struct CheckFence {
  Fence fence;
};
struct PutSearchState {
  int64_t job;
  int32_t task;
  std::string state;
};
// What an update stage gave besides its state. The transfer samples are those of the workload, whichever
// job made it; one that does not replace what is there leaves it.
struct PutLearned {
  int64_t job;
  int32_t task;
  v1::SearchReport report;
  WorkloadId workload;
  v1::TransferSamples transfer_samples;
  int64_t made_unix_ns;
  int32_t results =
      0;  // that it learned of: TransferModel.since of the device key grows by so many
};
// As TransferModels::Put (learned.h).
struct PutTransferModel {
  TransferModelId id;
  v1::TransferModel model;
};
struct InsertCandidate {
  CandidateRow row;
};  // AlreadyExists
struct PutAttempts {
  int64_t job;
  int64_t candidate;
  int32_t attempts;
};
struct LearnTask {
  int64_t job;
  int32_t task;
  int64_t before;
};  // every candidate of the task before this one that has a final record is learned
// A measurement. Of a job's candidate (record.job, candidate, attempt set): AlreadyExists if the
// candidate has its final record; FailedPrecondition if the fencing token is older than one seen
// for the slot. Imported (the job is then only provenance): AlreadyExists if workload, target,
// device key, trace, creation time and samples are all those of a record that is there.
struct InsertRecord {
  v1::Record record;
  uint64_t fencing_token = 0;
  bool imported = false;
};
struct PutStage {
  StageRow row;
};  // inserts or replaces, by attempt id
using StoreChange =
    std::variant<PutJob, PutTask, CheckFence, PutSearchState, PutLearned, PutTransferModel,
                 InsertCandidate, PutAttempts, LearnTask, InsertRecord, PutStage>;
using Batch = std::vector<StoreChange>;

// A job as it is loaded at the start.
struct StoredJob {
  JobRow row;
  std::vector<TaskRow> tasks;            // by index
  std::vector<std::string> states;       // search states, by index
  std::vector<CandidateRow> candidates;  // by id; of finished jobs without traces
};

struct KnownRecords {
  int64_t total = 0;
  int64_t valid = 0;
  double best_ns = 0;
  double untuned_ns = 0;  // of the default schedule
};

class RecordStore {
 public:
  virtual ~RecordStore() = default;

  // Applies the batches in order, in one transaction that is durable on return. A batch is taken as
  // a whole or, with the reason in its place of the answer, not at all; the others are not touched
  // by that. An error for the call as a whole means that nothing changed: ResourceExhausted when
  // the disk is full (free space and call again), Internal for anything else.
  virtual absl::StatusOr<std::vector<absl::Status>> Apply(absl::Span<const Batch> batches) = 0;

  // Reads see what was applied before. Safe from any thread, beside Apply too.
  virtual absl::StatusOr<std::vector<StoredJob>> LoadJobs() = 0;
  // Of stages without an end.
  virtual absl::StatusOr<std::vector<StageRow>> UnfinishedStages() = 0;
  virtual absl::StatusOr<int64_t> LastAttempt() = 0;
  // Per slot, the largest fencing token seen.
  virtual absl::StatusOr<std::map<SlotId, uint64_t>> Fences() = 0;
  // By start; at most `limit`, the latest ones.
  virtual absl::StatusOr<std::vector<v1::StageSpan>> Timeline(int64_t job, int64_t limit) = 0;
  // Newest first.
  virtual absl::StatusOr<std::vector<v1::Record>> Query(const v1::RecordQuery& query) = 0;
  virtual absl::StatusOr<KnownRecords> Known(const WorkloadId& id) = 0;
  // What the latest update stage of the task reported; nothing if there was none.
  virtual absl::StatusOr<std::optional<v1::SearchReport>> Report(int64_t job, int32_t task) = 0;
  // Transfer samples that are related to a search of the workload: the nearest first (Nearer), and of
  // those alike the latest, until there are `limit` of them.
  virtual absl::StatusOr<std::vector<TransferSamples>> FindRelatedSamples(const WorkloadId& id,
                                                                          int64_t limit) = 0;
  virtual absl::StatusOr<std::map<TransferModelId, v1::TransferModel>> AllTransferModels() = 0;
  // Device keys with records for the target, most records first.
  virtual absl::StatusOr<std::vector<std::string>> DeviceKeys(const std::string& target) = 0;
};

// How many Query gives for the query's limit, of which 0 is a thousand, and more than
// kMaxQueryLimit that.
int64_t QueryLimit(const v1::RecordQuery& query);

// "j12", and back (0 for anything else).
std::string JobName(int64_t id);
int64_t ParseJobName(const std::string& name);

// Whether transfer samples of a workload replace the stored ones: a later search that was
// shorter must not, nor one of an older version that was no longer.
bool Replaces(const v1::TransferSamples& made, const v1::TransferSamples& old);

// The first word of a target, "llvm" or "cuda".
std::string KindOf(const std::string& target);

// Of the samples; 0 if there are none.
double Median(std::vector<double> samples);

// InvalidArgument naming the field that is missing or out of range.
absl::Status CheckRecord(const v1::Record& record);

// The lease under which the record was measured; nothing where it was not measured on a slot.
std::optional<Fence> FenceOf(const InsertRecord& change);
// FailedPrecondition: the fence is older than the token seen.
absl::Status StaleFence(const Fence& fence, uint64_t seen);

// SHA-256 over what makes two records the same (see InsertRecord); 32 bytes.
std::string RecordDigest(const v1::Record& record);

}  // namespace heddle::scheduler
