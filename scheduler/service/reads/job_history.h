// Finished jobs that are not in memory, because they ended before this process began, or a while ago. They stay in the
// store until somebody asks for them, so that neither a start takes longer nor a process grows the more of them there are.
// The 256 that were asked for last are kept, because open pages ask again and again. Thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "proto/jobs.pb.h"
#include "scheduler/core/ids.h"
#include "scheduler/store/record_store.h"

namespace heddle::scheduler {

class JobHistory {
 public:
  explicit JobHistory(RecordStore* store) : store_(store) {}

  // A finished job of the store as users see it. NotFound: the store has no such job.
  absl::StatusOr<std::shared_ptr<const v1::Job>> Get(JobId id) const;
  // The next Get reads the job anew; call when the store's has changed.
  void Forget(JobId id);
  // Whose job it is, also of an unfinished one. NotFound: the store has no such job.
  absl::StatusOr<std::string> Owner(JobId id) const;
  // Of the finished jobs with smaller ids than `before`, the `limit` largest, by id.
  absl::StatusOr<std::vector<JobOwner>> OwnersBefore(JobId before, int64_t limit) const;

 private:
  struct Read {
    int64_t asked = 0;  // of all that were, the larger the later
    std::shared_ptr<const v1::Job> job;
  };

  RecordStore* const store_;
  mutable absl::Mutex mutex_;
  mutable std::map<JobId, Read> kept_ ABSL_GUARDED_BY(mutex_);
  mutable int64_t asked_ ABSL_GUARDED_BY(mutex_) = 0;  // calls of Get
  int64_t forgotten_ ABSL_GUARDED_BY(mutex_) = 0;      // calls of Forget
};

}  // namespace heddle::scheduler
