// Performs the decisions of the dispatcher. One thread, the core thread, owns the dispatcher and
// the ledger and takes events from an inbox. Everything slow (streams, leases, disk) happens on
// other threads and comes back as an event. Users see snapshots, so no slow client delays a
// decision. A snapshot is shown only once all that it says is on disk, so a restart takes nothing
// back that anybody has seen.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "base/files/blob_store.h"
#include "proto/access/credentials.h"
#include "scheduler/core/dispatcher.h"
#include "scheduler/ledger/job_ledger.h"
#include "scheduler/service/reads/job_history.h"
#include "scheduler/service/reads/job_snapshots.h"
#include "scheduler/service/reads/publish_queue.h"
#include "scheduler/service/record_reader.h"
#include "scheduler/service/stages/lease_keeper.h"
#include "scheduler/service/stages/module_requests.h"
#include "scheduler/service/stages/stage_runner.h"
#include "scheduler/service/stages/tracker_watch.h"
#include "scheduler/service/stages/trackers.h"
#include "scheduler/service/stages/worker_channels.h"
#include "scheduler/service/telemetry/job_log.h"
#include "scheduler/service/telemetry/job_traces.h"
#include "scheduler/service/telemetry/metrics.h"
#include "scheduler/store/record_store.h"
#include "scheduler/store/store_writer.h"

namespace heddle::scheduler {

// The stored blobs of a submitted model.
struct ModelDigests {
  std::string file;   // the small ONNX file
  std::string parts;  // the BlobList of its parts; empty: it has none
};

class SchedulerLoop {
 public:
  struct Options {
    std::string tracker_address;  // or several, separated by commas (stages/trackers.h)
    Credentials credentials;      // of the scheduler, for the tracker and the workers
    std::string holder =
        "scheduler";  // name at the tracker: unique, and the same after a restart or take-over
    absl::Duration lease = absl::Seconds(60);  // of a slot, unless it is renewed
    std::string policy = kDefaultPolicy;
    int64_t max_artifact_bytes = DispatcherOptions().max_artifact_bytes;
    std::function<void(std::string)> fatal;  // called with a message when the process must end
    int64_t epoch = 0;                       // of the leadership
    // Whether this scheduler leads for certain (Leadership::Holds); asked before each turn, which waits for it. Null: there is
    // no other.
    std::function<bool()> leads{};
    // How long a job that has ended stays in memory. Then it is read from the store if somebody asks for it.
    absl::Duration keep_finished = absl::Minutes(5);
    SpanExporter* spans = nullptr;  // of jobs and stages; outlives the loop; null: none
  };
  // Loads the unfinished jobs; finished ones stay in the store until they are asked for. The store
  // must be open and must not be written by anybody else. Queries work at once; nothing else happens
  // before Begin.
  static absl::StatusOr<std::unique_ptr<SchedulerLoop>> Load(Options options, RecordStore* store,
                                                             BlobStore* blobs);
  void Begin();
  // Ends streams and threads and cancels running stages. The next start finds what these had to do.
  ~SchedulerLoop();

  // The job is durable when this returns. With a submit key (empty: none) that the user has used
  // before, for the same spec and model, this is that job. InvalidArgument, AlreadyExists (the key
  // was used for something else), ResourceExhausted (the disk is full), or Unavailable if the
  // scheduler shuts down or the store takes no writes.
  absl::StatusOr<std::string> Submit(const v1::JobSpec& spec, const ModelDigests& model,
                                     const std::string& submit_key = "");

  const JobSnapshots& jobs() const { return snapshots_; }

  enum class Action { kPause, kResume, kCancel };
  absl::StatusOr<std::shared_ptr<const v1::Job>> Act(Action action, const std::string& job,
                                                     const std::string& reason);
  // Changes the order among the jobs of one tenant (JobSpec.priority); stages that run go on.
  // InvalidArgument: out of range. NotFound. FailedPrecondition: the job is over.
  absl::StatusOr<std::shared_ptr<const v1::Job>> SetPriority(const std::string& job, int priority);

  // Returns the digest of a module with the chosen schedules, and compiles it if needed. `gone`
  // tells whether the caller has left.
  absl::StatusOr<std::string> Module(const std::string& job, v1::ScheduleChoice choice,
                                     const std::function<bool()>& gone);

  // Retracts the records that match the query (RecordService.RetractRecords) and returns their number.
  // `read_later` reads the pages after the first (RecordStore.QueryPage). Unavailable if the store takes no writes,
  // Cancelled once the caller is `gone`; what was retracted by then stays so.
  absl::StatusOr<int64_t> Retract(v1::RecordQuery query, const v1::Retraction& retraction,
                                  const ReadPage& read_later, const std::function<bool()>& gone);

  // Marks a finished job as collected, once its rows are (Collector), and drops what is left of it.
  // ResourceExhausted or Unavailable: the store takes no writes.
  absl::Status MarkCollected(JobId job);

  // Digests of modules that were compiled on demand and are kept for later requests.
  std::vector<std::string> KeptModules() const { return modules_.Kept(); }

  // Waits until everything that has happened is on disk, but not for long, because the store may not
  // take writes.
  void Flush();

  StoreWriter* writer() { return writer_.get(); }
  TrackerInUse tracker() { return trackers_.in_use(); }
  const std::string& tracker_address() const { return trackers_.address(); }
  const std::string& policy() const { return options_.policy; }

  // Whether this process leads for certain (Leadership); if not, it decides nothing.
  bool leads() const { return !options_.leads || options_.leads(); }

  // Of all stages before this attempt, what the store is to know is on disk. It grows.
  int64_t FirstOpenAttempt() const { return first_open_attempt_; }

  Metrics* metrics() { return &metrics_.registry(); }
  LeaseKeeper::Counts leases() const { return leases_->counts(); }
  // Not OK: no decision was made for longer than ever happens, although the store takes writes.
  absl::Status Live() const;
  // Not OK: nothing can be tuned now, since the store takes no writes or the tracker does not answer.
  absl::Status Ready() const;

 private:
  struct Input {
    Event event;
    // Called once the event's effect is on disk and users see it.
    std::function<void()> shown{};
    bool planned = false;  // end of an import: the known records are filled in
    // A finished job of the store that the event needs.
    std::shared_ptr<const StoredJob> recalled{};
  };
  // What the reader found for the first entry of `finds_`.
  struct Found {
    RecordsFound records;
    absl::Status status;
  };
  SchedulerLoop(Options options, RecordStore* store, BlobStore* blobs,
                std::unique_ptr<Policy> policy);
  absl::Status LoadJobs();
  void Run();
  bool Post(Input input);
  // As Post, but does not wait; for stages. Returns whether there is room for more.
  bool Take(Input input);
  // Stages that waited for room read on.
  void ResumeReading();
  void Handle(Input input);
  // Takes warnings and module digests from the end of a stage; the dispatcher does not need them.
  void NoteEnd(const Event& event);
  bool AwaitsRecords(Input* input);
  void AskForRecords();
  void TakeFound(Found found);
  // Whether the job has ended; one that is no longer in memory has.
  bool IsOver(JobId job) const;
  void Perform(const Order& order);
  void PerformStart(const StartStage& start);
  void EndSpan(const StageFinished& end, Batch* batch);
  void OnLeased(AttemptId attempt, const v1::Lease& lease);
  std::optional<JobId> SubjectOf(const Event& event) const;
  void Mark(JobId job);
  void NoteChanges(const Event& event, std::optional<JobId> subject, const Decisions& decisions);
  JobSnapshots::Views TakeViews(bool at_once);
  void Publish(bool at_once, std::function<void()> shown = nullptr);
  absl::Status CallAndWait(Input input, const std::string& what,
                           std::shared_ptr<void> held = nullptr);
  absl::StatusOr<std::shared_ptr<void>> ClaimKey(const std::string& user, const std::string& key);
  StageRunner* Runner(AttemptId attempt);
  void ReapRunners();
  // Drops jobs that have ended long enough ago, and are shown so.
  void DropFinished();

  const Options options_;
  RecordStore* const store_;
  BlobStore* const blobs_;
  Trackers trackers_;
  std::atomic<int64_t> next_job_{1};
  std::atomic<int64_t> next_fetch_{1};
  std::atomic<int64_t> first_open_attempt_{1};
  SchedulerMetrics metrics_;

  // Used only by the core thread.
  Dispatcher dispatcher_;
  JobLedger ledger_;
  JobLog log_;
  JobTraces traces_{options_.spans, options_.holder};
  std::map<AttemptId, StageRow> spans_;  // of stages that have not ended
  int64_t next_attempt_ = 1;             // one past the latest stage
  std::map<JobId, int> running_;         // running stages
  absl::Time find_after_ = absl::InfinitePast();
  std::deque<FindRecords> finds_;  // lookups to make, in turn
  bool finding_ = false;           // the first of finds_ is being looked up
  PublishQueue to_publish_;
  std::deque<std::pair<absl::Time, JobId>> finished_;  // jobs in memory that have ended, and when

  mutable absl::Mutex mutex_;
  // Users and keys of submissions that are not durable yet. Inputs hold some of them, so this is
  // destroyed after the inbox.
  std::set<std::pair<std::string, std::string>> claimed_keys_ ABSL_GUARDED_BY(mutex_);
  std::deque<Input> inbox_ ABSL_GUARDED_BY(mutex_);
  int64_t inbox_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<std::function<void()>> awaiting_room_ ABSL_GUARDED_BY(mutex_);  // see ResumeReading
  std::deque<std::pair<AttemptId, v1::Lease>> leased_ ABSL_GUARDED_BY(mutex_);
  // The largest fencing token seen for each slot. Leases with a smaller one are not used.
  std::map<SlotId, uint64_t> fences_ ABSL_GUARDED_BY(mutex_);
  std::vector<AttemptId> ended_ ABSL_GUARDED_BY(mutex_);
  std::optional<Found> found_ ABSL_GUARDED_BY(mutex_);
  // The latest report of the writer that the core thread has not taken yet. Empty text: the store
  // takes writes again.
  std::optional<std::string> store_problem_ ABSL_GUARDED_BY(mutex_);
  // As of the last SlotsChanged that was handled; empty: the tracker answers.
  std::string tracker_problem_ ABSL_GUARDED_BY(mutex_) = "the tracker has not answered yet";
  absl::Time last_turn_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteFuture();  // of the core thread
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  // Snapshots that wait until what they show is on disk, and whether some no longer have to.
  int unshown_ ABSL_GUARDED_BY(mutex_) = 0;
  bool shown_ ABSL_GUARDED_BY(mutex_) = false;

  JobHistory history_;
  JobSnapshots snapshots_{&history_};
  ModuleRequests modules_;
  WorkerChannels channels_{&options_.credentials};
  FitsToAll fits_;

  // Declared before the threads that use them, and destroyed after those.
  std::unique_ptr<LeaseKeeper> leases_;
  std::unique_ptr<StoreWriter> writer_;
  std::unique_ptr<RecordReader> reader_;
  std::unique_ptr<ThreadPool> stage_starters_, stage_pool_;
  std::map<AttemptId, std::unique_ptr<StageRunner>> runners_;
  std::unique_ptr<TrackerWatch> watch_;
  std::thread thread_;
};

}  // namespace heddle::scheduler
