// Everything the scheduler must not forget: jobs, tasks, candidates, records, and the history of
// stages.
//
// The scheduler is the only writer; everybody else asks it over gRPC. Of several schedulers, that is the
// one that leads (leader.h). The data is in an SQLite file or in a PostgreSQL database (open_store.h).
// MemoryRecordStore keeps it in the process, for simulations and tests.
// tests/scheduler/store/record_store_test.cc holds all three to the same promises.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/vocabulary/limits.h"
#include "proto/jobs.pb.h"
#include "proto/message_rules.h"
#include "proto/worker.pb.h"
#include "scheduler/core/events.h"
#include "scheduler/core/ids.h"
#include "scheduler/core/job_state.h"
#include "scheduler/store/leader.h"

namespace heddle::scheduler {

struct JobRow {
  int64_t id = 0;
  v1::Job job;  // without tasks; `state` is never JOB_PAUSED, see `paused`
  bool paused = false;
  std::string device_key;  // the job measures only on devices of this key; empty: any
  std::string submit_key;  // SubmitRequest.submit_key; empty: the client gave none
};

struct TaskRow : TaskProgress {
  int64_t job = 0;
  int32_t index = 0;
  v1::TaskInfo info;
  bool done = false;
  bool warm_pending = false;  // the search has not learned all known records
};

struct CandidateRow {
  int64_t job = 0;
  int64_t id = 0;
  int32_t task = 0;
  std::string trace;
  std::string origin;
  int32_t attempts = 0;  // infrastructure faults so far
  bool learned = false;  // the search state contains its result
  // Of its final record, also after that was removed; InsertCandidate ignores these.
  std::optional<v1::Outcome> outcome{};  // nullopt: there is no final record yet
  double median_ns = 0;
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

// How useful transfer samples may be to a search.
enum class Relatedness {
  kNone,    // they are the search's own, or of another kind of target
  kTarget,  // of the same kind of target on another device key
  kDevice,  // on the same device key, but for another target, such as another number of threads
  kSame,    // of another workload on the same target and device key
};
Relatedness RelatednessOf(const WorkloadId& transfer_samples, const WorkloadId& search);
// Whether a search should begin with transfer samples of `a` rather than of `b`. The search's own
// workload comes first, then the closer relation. (One network alone has more related tasks than a
// search is told of.)
bool Nearer(const WorkloadId& a, const WorkloadId& b, const WorkloadId& search);

// What plan stages found about kernels' costs (KernelFactor in worker.proto), newest first.
struct Experience {
  std::vector<v1::KernelFactor> device;  // on a target and device key
  std::vector<v1::KernelFactor> others;  // on others of the same kind of target
};
// Factors that are kept of a device key, over all its targets: the newest ones.
inline constexpr int64_t kMaxExperience = 4096;

// A record's place in the order of queries.
struct RecordPlace {
  int64_t created_unix_ns = 0;
  int64_t id = 0;  // of the stored record; later ones have larger ids
};
struct RecordPage {
  std::vector<v1::Record> records;
  std::optional<RecordPlace> last;  // absent: no record comes after these
};

// A trial without its text, for charts.
struct TrialPoint {
  int64_t number = 0;  // from 1: its place among all, in the order in which they were stored
  int64_t id = 0;      // Record.id
  int64_t created_unix_ns = 0;
  double median_ns = 0;  // 0: it failed
  std::string origin;    // of its candidate; empty for imported records
  std::string job;       // empty for imported records, whose job is one of another service
  bool fastest_so_far = false;
};
struct TrialSample {
  int64_t all = 0;                 // number of trials that there are
  std::vector<TrialPoint> points;  // by number
};
// A task of any job, by its workload.
struct WorkloadName {
  std::string key;
  std::string label;
  double flops = 0;
};

// So many records of a workload on its target and device key a search is sent, at most: the newest ones;
// more teach a model little.
inline constexpr int64_t kMaxWarmRecords = 4096;

// Which records are old, so that nobody needs them any more. All of them are imported, or of collected jobs.
// Old are those that were retracted before the time, and those that were made before it and superseded:
// there are `newest` newer ones of the same workload, target and device key, none of which is retracted.
// The fastest of these, the fastest that was not imported, those of the default schedule, and those whose workload is a task of an unfinished
// job are never superseded.
struct OldRecordRule {
  int64_t before_unix_ns = 0;
  int64_t newest = kMaxWarmRecords;
};
// Where the look at old records goes on: after this one, the last that was looked at. Records come
// by workload, target and device key; of these, the newest first. Only the store that made a place
// understands it.
struct OldRecordPlace {
  struct Fast {
    double median_ns = 0;
    int64_t id = 0;
    auto operator<=>(const Fast&) const = default;
  };
  std::array<int64_t, 3> group = {};  // workload, target and device key, as the store numbers them
  int64_t created_unix_ns = 0;
  int64_t id = 0;
  // Of the group, so that no page reads again what an earlier one has read:
  int64_t newer = 0;                   // records looked at that were not retracted
  bool knows_best = false;             // the two below are known
  std::optional<Fast> best = {};       // absent: none is valid
  std::optional<Fast> best_here = {};  // of those that were not imported
};
struct OldRecords {
  std::vector<int64_t> ids;
  int64_t bytes = 0;                   // about
  std::optional<OldRecordPlace> last;  // absent: all were looked at
};

// A workload of which two devices have valid records, with the fastest of each over all targets.
struct DevicePair {
  WorkloadName name;
  struct Best {
    double median_ns = 0;
    std::string target;
  };
  Best a, b;
};

// ---- changes ----
// Besides these, the store takes SetAttempts and MarkLearned just as the dispatcher decides them
// (scheduler/core/events.h).

// Inserts or replaces. AlreadyExists if another job of the same user has this submit key.
struct PutJob {
  JobRow row;
};
// Inserts or replaces; keeps the search state.
struct PutTask {
  TaskRow row;
};
// Refuses the batch with FailedPrecondition if the token is older than one seen for the slot. It is
// the first change of a batch that commits the result of a stage.
struct CheckFence {
  Fence fence;
};
struct PutSearchState {
  int64_t job;
  int32_t task;
  std::string state;
};
// What an update stage gave besides its state. The transfer samples belong to the workload, whichever
// job made them. Stored samples stay unless Replaces says otherwise.
struct PutLearned {
  int64_t job;
  int32_t task;
  v1::SearchReport report;
  WorkloadId workload;
  v1::TransferSamples transfer_samples;
  int64_t made_unix_ns;
  int32_t results = 0;  // learned by this update; added to TransferModel.since of the device key
};
// As TransferModels::Put (transfer.h).
struct PutTransferModel {
  TransferModelId id;
  v1::TransferModel model;
};
// What was measured of the devices of a key, as a text that the service does not read; replaces what
// was kept. Empty: nothing.
struct PutMachine {
  std::string device_key;
  std::string machine;
};
// What a plan stage found. A factor replaces that of the same workload, target and device key. One whose
// workload no task has is dropped.
struct PutExperience {
  std::string target;
  std::string device_key;
  int64_t made_unix_ns = 0;
  std::vector<v1::KernelFactor> factors;
};
// AlreadyExists if the candidate is there.
struct InsertCandidate {
  CandidateRow row;
  std::optional<v1::Prediction> prediction{};
};
// A measurement, of one of two kinds:
//   Of a job's candidate: record.job, candidate and attempt are set. AlreadyExists if the candidate
//   has its final record; FailedPrecondition if the fencing token is older than one seen for the
//   slot.
//   Imported: the job only tells where the record came from, and record.imported_by who brought it.
//   AlreadyExists if a record with the same workload, target, device key, trace, creation time and
//   samples is there.
// Of the records of a workload, target and device key that were measured here, those of default schedules and the fastest
// of the others keep their loops (Measurement.loops): a faster one drops those of the fastest before it, and a slower one
// comes without. If the fastest is retracted, the next one has none.
struct InsertRecord {
  v1::Record record;
  uint64_t fencing_token = 0;
  bool imported = false;
};
// Marks the records as retracted; those that are, or are not there, stay as they are. What was learned
// from them goes: transfer samples and experience of their workloads on their target and device key,
// and the transfer models of these two. From now on Query leaves them out unless asked, Known does
// not count them, and LoadJobs gives their candidates the outcome LOST.
struct RetractRecords {
  std::vector<int64_t> ids;  // Record.id
  v1::Retraction retraction;
};
// Inserts or replaces the stage of that attempt id.
struct PutStage {
  StageRow row;
};
// Removes rows of a finished job that its collection does not need any more (RecordStore::Collection).
// Ids that are not there, or not of the job, are no error. FailedPrecondition: the job has not ended.
struct CollectRows {
  int64_t job;
  std::vector<int64_t> candidates;  // lose their traces; their records have them
  std::vector<int64_t> records;     // lose raw data (Thinned)
  std::vector<int64_t>
      attempts;  // of stages that go; the latest of all stays, so that no id comes again
};
// Removes the records that RecordStore::FindOldRecords gives with these arguments. Their candidates keep outcome
// and median, and what was retracted is not imported again.
struct RemoveRecords {
  OldRecordRule rule;
  std::optional<OldRecordPlace> after;
  int64_t limit = 0;
};
// Marks a finished job as collected (MarkCollected), and drops search states and reports of its tasks.
// FailedPrecondition: the job has not ended.
struct CollectJob {
  int64_t job;
  int64_t unix_ns;
};
using StoreChange =
    std::variant<PutJob, PutTask, CheckFence, PutSearchState, PutLearned, PutTransferModel,
                 PutMachine, PutExperience, InsertCandidate, SetAttempts, MarkLearned, InsertRecord,
                 RetractRecords, PutStage, CollectRows, RemoveRecords, CollectJob>;
using Batch = std::vector<StoreChange>;

// A candidate as it is loaded at the start.
struct StoredCandidate : CandidateRow {
  // Of its final record; of finished jobs' valid records, these are not loaded.
  std::string message;
  int64_t profile_ns = 0;
};

// Which jobs LoadJobs and Owners read.
struct JobSelection {
  enum Which { kAll, kUnfinished, kFinished } which = kAll;
  // Of these, the ones with the largest ids that are smaller than `before`, at most `limit`.
  int64_t before = std::numeric_limits<int64_t>::max();
  int64_t limit = std::numeric_limits<int64_t>::max();
};

// Whose a job is.
struct JobOwner {
  int64_t job = 0;
  std::string user;  // JobSpec.user
};

// The blobs that a job refers to. The list of its parts names further ones.
struct JobBlobs {
  int64_t job = 0;
  std::vector<std::string> blobs;  // its model, modules, and the list of the model's parts
  std::string parts_digest;        // of that list; empty: the model has no parts
};

// A finished job that was not collected.
struct FinishedJob {
  int64_t id = 0;
  std::string name;
  int64_t finished_unix_ns = 0;
  JobBlobs blobs;
};

// A place among the rows of a job that a collection looks at: first its candidates with their records, by
// id, then its stages, by start and attempt.
struct CollectionPlace {
  int64_t candidate = 0;
  int64_t start_unix_ns = -1;
  int64_t attempt = 0;
};
// Some of what collecting a finished job removes from the database.
struct Collection {
  CollectRows rows;
  int64_t bytes = 0;                    // about; in the first page with the search reports
  std::optional<CollectionPlace> last;  // absent: no row comes after these
  int64_t count() const {
    return static_cast<int64_t>(rows.candidates.size() + rows.records.size() +
                                rows.attempts.size());
  }
};

// A job as the store has it.
struct StoredJob {
  JobRow row;
  std::vector<TaskRow> tasks;               // by index
  std::vector<std::string> states;          // search states, by index
  std::vector<StoredCandidate> candidates;  // by id; those of finished jobs have no traces
};

class RecordStore {
 public:
  virtual ~RecordStore() = default;

  // Applies the batches in order, in one transaction that is durable on return. Each batch is taken
  // as a whole, or not at all if its answer is an error; that does not touch the others. An error
  // for the whole call means that nothing changed: ResourceExhausted when the disk is full (free
  // space and call again), Aborted when another scheduler leads (SetEpoch; the caller must end),
  // FailedPrecondition when a newer program has migrated the tables (the caller must end),
  // Internal for anything else. Unavailable alone (the database is locked by another program or cannot be
  // reached) leaves in doubt whether the call was taken: call again with the same batches; they are not
  // applied twice.
  virtual absl::StatusOr<std::vector<absl::Status>> Apply(absl::Span<const Batch> batches) = 0;

  // ---- who leads (leader.h) ----
  // Claims the leadership: the caller takes it if it is free, or renews it if it has it. Returns who leads afterwards; that is
  // the caller if Leader::scheduler is its name. The claim is durable on return.
  // ResourceExhausted: the store takes no writes from anybody now (the disk is full, or another
  // program has locked it), so nobody else can take the leadership either. Aborted: another was
  // faster; ask again. FailedPrecondition: a newer program has migrated the tables, or the database no longer takes this
  // one; asking again does not help. Other errors: nothing is known.
  virtual absl::StatusOr<Leader> Lead(const LeaderClaim& claim) = 0;
  // Lets go of the leadership of that epoch, after the last write; no error if another leads by now.
  virtual absl::Status EndLead(const std::string& pool, int64_t epoch) = 0;
  // Who leads; writes nothing.
  virtual absl::StatusOr<Leader> LeaderOf(const std::string& pool) = 0;
  // From now on, Apply of this object works only while this epoch is the stored one, which each call checks in its own
  // transaction. A migration of the tables ends the epoch. Without this call, Apply checks nothing.
  virtual void SetEpoch(const std::string& pool, int64_t epoch) = 0;
  // A random name, 32 hexadecimal digits, that the store got when it was made. All schedulers that use the store read the
  // same one, and a backup of the store keeps it. `heddle store copy` does not copy it.
  virtual absl::StatusOr<std::string> Identity() = 0;

  // A read sees everything that was applied before it. Reads are safe from any thread, also while
  // Apply runs.
  //
  // By id. Unless all jobs are asked for, the time does not depend on how many there are besides.
  virtual absl::StatusOr<std::vector<StoredJob>> LoadJobs(const JobSelection& selection = {}) = 0;
  // Whose the selected jobs are, by id. Reads nothing else of them, so it is fit for asking whether
  // somebody may see a job at all.
  virtual absl::StatusOr<std::vector<JobOwner>> Owners(const JobSelection& selection) = 0;
  // The largest id of a job; 0: there is none.
  virtual absl::StatusOr<int64_t> LastJob() = 0;
  // The user's job with this submit key, without its tasks.
  virtual absl::StatusOr<std::optional<JobRow>> FindSubmitted(const std::string& user,
                                                              const std::string& submit_key) = 0;
  // Of all jobs, by id.
  virtual absl::StatusOr<std::vector<JobBlobs>> BlobsOfJobs() = 0;
  // The finished jobs that are not collected, those that ended first before the others.
  virtual absl::StatusOr<std::vector<FinishedJob>> Collectable() = 0;
  // What may go of a finished job, of the at most `limit` candidates with their records, and stages, that
  // come after the place. Each page is read at a time of its own. Left out are raw data of records that are the fastest of their
  // workload on their target and device key, and of those whose workload is a task of an unfinished
  // job. A job that begins, or a record that becomes the fastest, before these rows are removed loses
  // only numbers that no search reads.
  virtual absl::StatusOr<Collection> CollectionOf(int64_t job, const CollectionPlace& after,
                                                  int64_t limit) = 0;
  // The old records among the `limit` that come after this place; absent: from the beginning. The
  // pages look at each record once. One that is retracted after it was looked at still counts as
  // newer than others, and one that is stored before the place waits for the next look. The latest
  // record of all is never old, so that no id comes again.
  virtual absl::StatusOr<OldRecords> FindOldRecords(const OldRecordRule& rule,
                                                    const std::optional<OldRecordPlace>& after,
                                                    int64_t limit) = 0;
  // Stages without an end.
  virtual absl::StatusOr<std::vector<StageRow>> UnfinishedStages() = 0;
  virtual absl::StatusOr<int64_t> LastAttempt() = 0;
  // The largest fencing token seen for each slot.
  virtual absl::StatusOr<std::map<SlotId, uint64_t>> Fences() = 0;
  // The latest `limit` stages of the job that began at that time or later, by start.
  virtual absl::StatusOr<std::vector<v1::StageSpan>> Timeline(int64_t job, int64_t since_unix_ns,
                                                              int64_t limit) = 0;
  // Newest first, without loops (Measurement.loops). For the scheduler itself: its reads do not wait for those of users.
  virtual absl::StatusOr<std::vector<v1::Record>> Query(const v1::RecordQuery& query) = 0;
  // For users: at most `limit`, and about 8 MiB, of the records that Query gives without a limit, those that come after
  // `after`. Each page is read at a time of its own. Records made between pages are newer and so not
  // seen; with best_only, a workload that got a new best record in between is not seen either.
  // A page of a query to which no index leads looks at some ten thousand records. It may have few of them or none, and yet a
  // `last`. Pages with an `after` hold up nobody but each other, and no writer, so a thread of low priority reads them. Only
  // that thread should: another one would wait for it.
  virtual absl::StatusOr<RecordPage> QueryPage(const v1::RecordQuery& query,
                                               const std::optional<RecordPlace>& after,
                                               int64_t limit) = 0;
  // Of the records of a workload on a target and device key: those that were the fastest so far when
  // they were stored, and about `most` others, evenly spread (base/vocabulary/choose_trials.h). Lost and retracted ones are left out; of
  // the latter, some may still be counted. For users. A hundred thousand trials take some ten
  // milliseconds.
  virtual absl::StatusOr<TrialSample> SampleTrials(const WorkloadId& id, int64_t most) = 0;
  // The latest `limit` stages of all jobs, without those of attempts before that one; by attempt. For users.
  virtual absl::StatusOr<std::vector<v1::StageSpan>> LatestStages(int64_t first_attempt,
                                                                  int64_t limit) = 0;
  // Workloads that have records, whose label contains the text or whose key begins with it, letters of
  // either case. By key: at most `limit` after the key `after`. For users.
  virtual absl::StatusOr<std::vector<WorkloadName>> FindWorkloads(const std::string& text,
                                                                  const std::string& after,
                                                                  int64_t limit) = 0;
  // Workloads of which both device keys have valid records that were not retracted, by key; only the first
  // `limit` workloads of all are looked at. For users.
  virtual absl::StatusOr<std::vector<DevicePair>> CompareDevices(const std::string& device_a,
                                                                 const std::string& device_b,
                                                                 int64_t limit) = 0;
  // Lost and retracted trials do not count.
  virtual absl::StatusOr<KnownRecords> Known(const WorkloadId& id) = 0;
  // The fastest valid record of the workload that was measured here, not imported; nullopt: there is
  // none.
  virtual absl::StatusOr<std::optional<v1::Record>> BestMeasured(const WorkloadId& id) = 0;
  // The report of the task's latest update stage; nullopt if there was none.
  virtual absl::StatusOr<std::optional<v1::SearchReport>> Report(int64_t job, int32_t task) = 0;
  // At most `limit` transfer samples that are related to a search of the workload. The nearest come
  // first (Nearer); among equally near ones, the latest.
  virtual absl::StatusOr<std::vector<TransferSamples>> FindRelatedSamples(const WorkloadId& id,
                                                                          int64_t limit) = 0;
  // All transfer samples of a kind of target (KindOf), page by page: at most `limit` that come after
  // those of `after`; absent: from the beginning. They come in an order of the store's own, in which
  // new workloads come first if the store is on disk. Each page is read at a time of its own.
  virtual absl::StatusOr<std::vector<TransferSamples>> SamplesAfter(
      const std::string& kind, const std::optional<WorkloadId>& after, int64_t limit) = 0;
  virtual absl::StatusOr<std::map<TransferModelId, v1::TransferModel>> AllTransferModels() = 0;
  // What was measured, by device key; keys without a machine are left out.
  virtual absl::StatusOr<std::map<std::string, std::string>> Machines() = 0;
  // At most `limit` factors on the target and device key, and as many on others. Of those that were made
  // at the same time, the smaller workload key comes first, then the smaller target and device key.
  virtual absl::StatusOr<Experience> FindExperience(const std::string& target,
                                                    const std::string& device_key,
                                                    int64_t limit) = 0;
  // Device keys that have records for the target, the one with the most records first.
  virtual absl::StatusOr<std::vector<std::string>> DeviceKeys(const std::string& target) = 0;
};

// How the message of a trial begins whose record was retracted; the reason follows.
inline constexpr char kRetracted[] = "its record was retracted: ";
// The message of a trial without a valid measurement whose record was removed.
inline constexpr char kRemoved[] = "its record was old and was removed";

// How many records Query gives at most: the query's limit, a thousand if that is 0, and never more
// than kMaxQueryLimit.
int64_t QueryLimit(const v1::RecordQuery& query);

// "j12". ParseJobName is the inverse; it gives 0 for anything else.
std::string JobName(int64_t id);
int64_t ParseJobName(const std::string& name);

JobBlobs BlobsOf(const JobRow& row);

// The job without what its collection removes, with the time of that and a warning about it.
void MarkCollected(int64_t unix_ns, v1::Job* job);
// What a measurement keeps once its job is collected: outcome, message, median, durations, and by which
// worker and toolchain it was made.
v1::Measurement Thinned(const v1::Measurement& measured);
// The FailedPrecondition of a change that collects an unfinished job, or none.
absl::Status NotFinished(int64_t job);

// Whether new transfer samples of a workload replace the stored ones. Samples of a newer version
// always do. Of the same version they need at least as many measurements, of an older one more.
// Empty samples replace nothing.
bool Replaces(const v1::TransferSamples& made, const v1::TransferSamples& old);

// The lease under which the record was measured; nullopt if it was not measured on a slot.
std::optional<Fence> FenceOf(const InsertRecord& change);
// The Aborted of a write in an epoch that is over, since another scheduler leads.
absl::Status NotLeading(const Leader& leader, int64_t epoch);

// The FailedPrecondition of a fence that is older than the token seen.
absl::Status StaleFence(const Fence& fence, uint64_t seen);

// A digest of what makes two records the same (InsertRecord): SHA-256, 32 bytes.
std::string RecordDigest(const v1::Record& record);

}  // namespace heddle::scheduler
