// Removes blobs that no job refers to: parts of models that were uploaded and never submitted, and
// modules that were compiled on demand for one call.
#pragma once

#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "base/blob_store.h"
#include "scheduler/service/scheduler_loop.h"
#include "scheduler/store/record_store.h"

namespace heddle::scheduler {

// What is younger may belong to a model that is being submitted.
inline constexpr absl::Duration kKeepUnused = absl::Hours(24);

// Removes the blobs that were not used since `now` - kKeepUnused, and that neither a job of the store
// nor `kept` refers to. Returns their bytes. An error means that nothing was removed.
absl::StatusOr<int64_t> SweepBlobs(RecordStore* store, const std::vector<std::string>& kept,
                                   absl::Time now, BlobStore* blobs);

// Sweeps at its start and every hour, on a thread of its own, until it ends.
class BlobSweeper {
 public:
  BlobSweeper(SchedulerLoop* loop, RecordStore* store, BlobStore* blobs);
  ~BlobSweeper();

 private:
  absl::Notification stop_;
  std::thread thread_;
};

}  // namespace heddle::scheduler
