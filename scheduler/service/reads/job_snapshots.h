// What users see of jobs: the latest snapshot of each, with a version that grows with every change.
// Jobs that ended before this process began, or a while ago, are read from the store.
//
// Thread-safe. Calls of users only share the lock: none holds up another, and none wakes the watchers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "proto/jobs.pb.h"
#include "scheduler/core/ids.h"
#include "scheduler/service/reads/job_history.h"

namespace heddle::scheduler {

// NotFound: there is no job of this name.
absl::Status NoSuchJob(const std::string& job);

class JobSnapshots {
 public:
  struct Snapshot {
    int64_t version = 0;  // 0: of the history
    std::shared_ptr<const v1::Job> job;
    // By task: the version with which it got its present state.
    std::shared_ptr<const std::vector<int64_t>> task_versions;
  };
  using Views = std::vector<std::pair<JobId, std::shared_ptr<const v1::Job>>>;

  // `history` outlives this.
  explicit JobSnapshots(const JobHistory* history) : history_(history) {}

  // Replaces the snapshots of these jobs, all at once. A snapshot that is equal keeps its version.
  void Put(Views views);
  // Forgets the snapshot of a job that IsOver; the history has it.
  void Drop(JobId job);
  // Replaces the reason of all unfinished jobs, until their next Put.
  void Explain(const std::string& reason);

  // NotFound, or an error of the store.
  absl::StatusOr<Snapshot> Get(const std::string& job) const;
  // Whose job it is (JobSpec.user); far cheaper than Get for a job of the history. Errors as Get.
  absl::StatusOr<std::string> Owner(const std::string& job) const;
  // Grows whenever a snapshot changes.
  int64_t changes() const;
  // The version of the job's snapshot; of a task, by number from 1, the one with which it got its present
  // state. 0: the job is of the history, or there is no such job or task.
  int64_t VersionOf(const std::string& job, int task = 0) const;
  // Whether the job has a snapshot of its own, besides what the history knows.
  bool Has(JobId job) const;
  // Whether its snapshot shows that it has ended.
  bool IsOver(JobId job) const;
  // Returns as soon as the version differs from `version`, or the current snapshot after `timeout`.
  // Errors as Get.
  absl::StatusOr<Snapshot> WaitForChange(const std::string& job, int64_t version,
                                         absl::Duration timeout) const;
  std::vector<std::shared_ptr<const v1::Job>> Unfinished() const;  // by id

  struct ListOptions {
    bool finished_too = false;
    JobId before{std::numeric_limits<int64_t>::max()};  // only jobs with smaller ids
    size_t max_jobs = 1000;
    size_t max_bytes = 3 << 20;
    std::function<bool(const std::string& user)>
        shown;  // whether the caller may see this user's jobs
  };
  struct Page {
    std::vector<std::shared_ptr<const v1::Job>>
        jobs;  // the newest first; at least one, if any is shown
    bool more = false;
  };
  // Errors of the store.
  absl::StatusOr<Page> List(const ListOptions& options) const;

 private:
  const JobHistory* const history_;
  absl::Mutex turn_;  // of Put and Explain; held by whoever changes snapshots
  mutable absl::Mutex mutex_ ABSL_ACQUIRED_AFTER(turn_);
  std::map<JobId, Snapshot> snapshots_ ABSL_GUARDED_BY(mutex_);
  int64_t changes_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace heddle::scheduler
