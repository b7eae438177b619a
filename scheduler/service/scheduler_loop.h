// Performs what the dispatcher decides. One thread owns dispatcher and job book and takes events
// from an inbox; everything slow (streams, leases, disk) happens elsewhere and comes back as an
// event. What users see are snapshots, so that no client, however slow, holds anything up.
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
#include "scheduler/service/lease_keeper.h"
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

  struct Snapshot {
    int64_t version = 0;  // grows with every change of the job
    std::shared_ptr<const v1::Job> job;
  };
  absl::StatusOr<Snapshot> Get(const std::string& job) const;  // NotFound
  // As soon as the version is another one, or after `timeout` what there is.
  absl::StatusOr<Snapshot> WaitForChange(const std::string& job, int64_t version,
                                         absl::Duration timeout) const;
  std::vector<std::shared_ptr<const v1::Job>> List(bool finished_too) const;

  enum class Action { kPause, kResume, kCancel };
  absl::StatusOr<std::shared_ptr<const v1::Job>> Act(Action action, const std::string& job,
                                                     const std::string& reason);

  // Digest of a module with the chosen schedules, compiled now if need be. `gone` tells that the
  // caller has left.
  absl::StatusOr<std::string> Module(const std::string& job, v1::ScheduleChoice choice,
                                     const std::function<bool()>& gone);

  // Writes imported records, in groups; the answer is per record, as RecordStore::Apply gives it.
  absl::StatusOr<std::vector<absl::Status>> Import(const std::vector<v1::Record>& records);

  // Waits until all that users have been shown is on disk, but not for long: the store may take no
  // writes just now.
  void Flush();

  v1::TrackerService::StubInterface* tracker() { return tracker_.get(); }
  const std::string& policy() const { return options_.policy; }

 private:
  struct Input {
    Event event;
    std::function<void()> durable;  // once the changes of this event are on disk
    std::function<void()> done;     // once the event is taken in and the snapshot shows it
  };
  struct FetchState {
    JobId job;
    v1::ScheduleChoice choice = v1::SCHEDULE_BEST;
    bool ended = false;
    FaultInfo fault;
    std::string digest;
  };

  SchedulerLoop(Options options, RecordStore* store, BlobStore* blobs,
                std::unique_ptr<Policy> policy);
  absl::Status LoadJobs();
  void Run();
  bool Post(Input input);
  void Handle(Input input);
  void Prepare(Input* input);
  void PlanTasks(AttemptId attempt, Imported* imported);
  // A task, with what the database has of it on devices of that key.
  absl::StatusOr<TaskPlan> PlanTask(const v1::TaskInfo& task, const std::string& target,
                                    const std::string& device_key);
  void AnswerFinds();
  absl::Status AnswerFind(const FindRecords& find);
  void Perform(const Order& order);
  void PerformStart(const StartStage& start);
  void EndSpan(const StageFinished& end, Batch* batch);
  void OnLeased(AttemptId attempt, const v1::Lease& lease);
  // What is shown (executive_views.cc).
  std::optional<JobId> SubjectOf(const Event& event) const;
  void MarkDirty(JobId job);
  void NoteChanges(const Event& event, std::optional<JobId> subject, const Decisions& decisions);
  bool ToPublish() const;
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
  std::deque<FindRecords> finds_;  // to be answered
  std::set<JobId> dirty_;          // to be shown anew: something happened to them
  // What one job does may be what another waits for: unfinished ones are shown anew in turn, the
  // latest of them, and how many are still to come.
  std::set<JobId> unfinished_;
  JobId shown_;
  size_t others_due_ = 0;
  absl::Time next_publish_ = absl::InfinitePast();

  mutable absl::Mutex mutex_;
  std::deque<Input> inbox_ ABSL_GUARDED_BY(mutex_);
  std::deque<std::pair<AttemptId, v1::Lease>> leased_ ABSL_GUARDED_BY(mutex_);
  // The largest fencing token seen of each slot; one that is smaller is not worked with.
  std::map<SlotId, uint64_t> fences_ ABSL_GUARDED_BY(mutex_);
  std::vector<AttemptId> ended_ ABSL_GUARDED_BY(mutex_);
  // The writer's latest word that the core has not heard yet; empty: writes are taken again.
  std::optional<std::string> store_problem_ ABSL_GUARDED_BY(mutex_);
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;

  mutable absl::Mutex view_mutex_ ABSL_ACQUIRED_AFTER(mutex_);
  std::map<JobId, Snapshot> snapshots_ ABSL_GUARDED_BY(view_mutex_);
  std::map<FetchId, FetchState> fetches_ ABSL_GUARDED_BY(view_mutex_);
  std::map<std::pair<JobId, v1::ScheduleChoice>, std::string> modules_ ABSL_GUARDED_BY(view_mutex_);

  // Before the threads that use them; ended in the reverse order.
  std::unique_ptr<LeaseKeeper> leases_;
  std::unique_ptr<StoreWriter> writer_;
  std::map<AttemptId, std::unique_ptr<StageRunner>> runners_;
  std::unique_ptr<TrackerWatch> watch_;
  std::thread thread_;
};

}  // namespace heddle::scheduler
