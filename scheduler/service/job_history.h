// Finished jobs of earlier processes. They stay in the store until somebody asks for them, so that
// a start takes no longer the more of them there are. Thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/jobs.pb.h"
#include "scheduler/core/ids.h"
#include "scheduler/store/record_store.h"

namespace heddle::scheduler {

class JobHistory {
 public:
  explicit JobHistory(RecordStore* store) : store_(store) {}

  // A finished job of the store as users see it. NotFound: the store has no such job.
  absl::StatusOr<std::shared_ptr<const v1::Job>> Get(JobId id) const;
  // Whose job it is, also of an unfinished one. NotFound: the store has no such job.
  absl::StatusOr<std::string> Owner(JobId id) const;
  // Of the finished jobs with smaller ids than `before`, the `limit` largest, by id.
  absl::StatusOr<std::vector<JobOwner>> OwnersBefore(JobId before, int64_t limit) const;

 private:
  RecordStore* const store_;
};

}  // namespace heddle::scheduler
