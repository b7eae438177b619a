// Removes blobs that no job refers to: parts of models that were uploaded and never submitted, modules
// that were compiled on demand for one call, and what collected jobs leave (collector.h).
#pragma once

#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "base/files/blob_store.h"
#include "scheduler/service/scheduler_loop.h"
#include "scheduler/service/storage/keep_rule.h"
#include "scheduler/store/record_store.h"

namespace heddle::scheduler {

// What is younger may belong to a model that is being submitted.
inline constexpr absl::Duration kKeepUnused = absl::Hours(24);

// The blobs that the jobs refer to, the parts of their models included. Parts of a model whose list is
// lost are left out: it cannot be read again. An error of the disk.
absl::StatusOr<std::set<std::string>> UsedBlobs(const std::vector<JobBlobs>& jobs,
                                                const BlobStore& blobs);

// Removes the blobs that were not used since `now` - kKeepUnused, and that neither a job of the store
// nor `kept` refers to. Returns their bytes. An error means that nothing was removed.
absl::StatusOr<int64_t> SweepBlobs(RecordStore* store, const std::vector<std::string>& kept,
                                   absl::Time now, BlobStore* blobs);

class Collector;

// Sweeps at its start and every hour, on a thread of its own, until it ends. With a rule, it collects
// finished jobs by the rule before each sweep.
class BlobSweeper {
 public:
  // All outlive this.
  BlobSweeper(SchedulerLoop* loop, RecordStore* store, BlobStore* blobs, Collector* collector,
              const std::optional<KeepRule>& rule);
  ~BlobSweeper();

 private:
  absl::Notification stop_;
  std::thread thread_;
};

}  // namespace heddle::scheduler
