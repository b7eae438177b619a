// What users see of jobs: the latest snapshot of each, with a version that grows with every change.
// Thread-safe.
#pragma once

#include <cstdint>
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

namespace heddle::scheduler {

// NotFound: there is no job of this name.
absl::Status NoSuchJob(const std::string& job);

class JobSnapshots {
 public:
  struct Snapshot {
    int64_t version = 0;
    std::shared_ptr<const v1::Job> job;
    // By task: the version with which it got its present state.
    std::shared_ptr<const std::vector<int64_t>> task_versions;
  };
  using Views = std::vector<std::pair<JobId, std::shared_ptr<const v1::Job>>>;

  // Replaces the snapshots of these jobs, all at once. A snapshot that is equal keeps its version.
  void Put(Views views);

  absl::StatusOr<Snapshot> Get(const std::string& job) const;  // NotFound
  // Returns as soon as the version differs from `version`, or the current snapshot after `timeout`.
  // NotFound if there is no such job.
  absl::StatusOr<Snapshot> WaitForChange(const std::string& job, int64_t version,
                                         absl::Duration timeout) const;
  std::vector<std::shared_ptr<const v1::Job>> List(bool finished_too) const;

 private:
  mutable absl::Mutex mutex_;
  std::map<JobId, Snapshot> snapshots_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace heddle::scheduler
