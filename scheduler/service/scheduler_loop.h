// Performs what the dispatcher decides. One thread owns dispatcher and job ledger and takes events
// from an inbox. Everything slow (streams, leases, disk) happens elsewhere and comes back as an
// event. Users see snapshots, so that no slow client delays a decision.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "scheduler/core/dispatcher.h"
#include "scheduler/ledger/job_ledger.h"
#include "scheduler/service/job_snapshots.h"
#include "scheduler/service/lease_keeper.h"
#include "scheduler/service/module_requests.h"
#include "scheduler/service/publish_queue.h"
#include "scheduler/service/record_reader.h"
#include "scheduler/service/stage_runner.h"
#include "scheduler/service/tracker_watch.h"
#include "scheduler/store/blob_store.h"
#include "scheduler/store/record_store.h"
#include "scheduler/store/store_writer.h"

namespace heddle::scheduler {

class SchedulerLoop {
 public:
  struct Options {
    std::string tracker_address;
    std::string holder = "scheduler";  // at the tracker: the same over restarts, and nobody else's
    std::string policy = kDefaultPolicy;
    std::function<void(std::string)> fatal;  // the process must end, with this message
  };
  // Loads all jobs; the store must be opened and not be written by anybody else. Answers questions
  // at once, does nothing before Begin.
  static absl::StatusOr<std::unique_ptr<SchedulerLoop>> Load(Options options, RecordStore* store,
                                                             BlobStore* blobs);
  void Begin();
  // Ends streams and threads; running stages are cancelled, what they had is found again at the
  // next start.
  ~SchedulerLoop();

  // The job is durable when this returns. InvalidArgument, Unavailable (shutting down, or the store
  // takes no writes).
  absl::StatusOr<std::string> Submit(const v1::JobSpec& spec, const std::string& model_digest);

  const JobSnapshots& jobs() const { return snapshots_; }

  enum class Action { kPause, kResume, kCancel };
  absl::StatusOr<std::shared_ptr<const v1::Job>> Act(Action action, const std::string& job,
                                                     const std::string& reason);

  // Digest of a module with the chosen schedules, compiled now if need be. `gone` tells that the
  // caller has left.
  absl::StatusOr<std::string> Module(const std::string& job, v1::ScheduleChoice choice,
                                     const std::function<bool()>& gone);

  // Waits until all that users have been shown is on disk, but not for long: the store may take no
  // writes just now.
  void Flush();

  StoreWriter* writer() { return writer_.get(); }
  v1::TrackerService::StubInterface* tracker() { return tracker_.get(); }
  const std::string& policy() const { return options_.policy; }

 private:
  struct Input {
    Event event;
    std::function<void()> durable;  // once the changes of this event are on disk
    std::function<void()> done;     // once the event is taken in and the snapshot shows it
    bool planned = false;           // end of an import: the tasks have their records
  };
  // What the reader found for the first of `finds_`.
  struct Found {
    RecordsFound records;
    absl::Status status;
  };
  SchedulerLoop(Options options, RecordStore* store, BlobStore* blobs,
                std::unique_ptr<Policy> policy);
  absl::Status LoadJobs();
  void Run();
  bool Post(Input input);
  void Handle(Input input);
  // Takes from the end of a stage what the dispatcher does not hear of.
  void NoteEnd(const Event& event);
  std::optional<std::string> DeviceKeyFor(JobId job) const;
  bool AwaitsRecords(Input* input);
  void AskForRecords();
  void TakeFound(Found found);
  void Perform(const Order& order);
  void PerformStart(const StartStage& start);
  void EndSpan(const StageFinished& end, Batch* batch);
  void OnLeased(AttemptId attempt, const v1::Lease& lease);
  std::optional<JobId> SubjectOf(const Event& event) const;
  void Mark(JobId job);
  void NoteChanges(const Event& event, std::optional<JobId> subject, const Decisions& decisions);
  void Publish(bool at_once);
  absl::Status CallAndWait(Input input, const std::string& what);
  StageRunner* Runner(AttemptId attempt);
  void ReapRunners();

  const Options options_;
  RecordStore* const store_;
  BlobStore* const blobs_;
  const std::shared_ptr<v1::TrackerService::StubInterface> tracker_;
  std::atomic<int64_t> next_job_{1};
  std::atomic<int64_t> next_fetch_{1};

  // Of the core thread alone.
  Dispatcher dispatcher_;
  JobLedger ledger_;
  std::map<AttemptId, StageRow> spans_;
  std::map<JobId, int> running_;  // stages
  absl::Time find_after_ = absl::InfinitePast();
  std::deque<FindRecords> finds_;  // to be answered, in turn
  bool finding_ = false;           // the first of them is being looked up
  PublishQueue to_publish_;

  mutable absl::Mutex mutex_;
  std::deque<Input> inbox_ ABSL_GUARDED_BY(mutex_);
  std::deque<std::pair<AttemptId, v1::Lease>> leased_ ABSL_GUARDED_BY(mutex_);
  // The largest fencing token seen of each slot; one that is smaller is not worked with.
  std::map<SlotId, uint64_t> fences_ ABSL_GUARDED_BY(mutex_);
  std::vector<AttemptId> ended_ ABSL_GUARDED_BY(mutex_);
  std::optional<Found> found_ ABSL_GUARDED_BY(mutex_);
  // The writer's latest word that the core has not heard yet; empty: writes are taken again.
  std::optional<std::string> store_problem_ ABSL_GUARDED_BY(mutex_);
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;

  JobSnapshots snapshots_;
  ModuleRequests modules_;

  // Before the threads that use them; ended in the reverse order.
  std::unique_ptr<LeaseKeeper> leases_;
  std::unique_ptr<StoreWriter> writer_;
  std::unique_ptr<RecordReader> reader_;
  std::map<AttemptId, std::unique_ptr<StageRunner>> runners_;
  std::unique_ptr<TrackerWatch> watch_;
  std::thread thread_;
};

}  // namespace heddle::scheduler
