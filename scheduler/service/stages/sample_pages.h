// The transfer samples of all tasks as blobs, for a search that fits its transfer model to them.
//
// An update stage computes a task's samples once, as its records come, and the store keeps them. A page
// joins those of some tasks on one target and device key. Pages are cut by the keys of their workloads,
// so that new tasks leave most pages as they were: these have the same digest, and a worker that has
// them is not sent them again. Pages that no stage uses any more are swept like other unused blobs.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "base/files/blob_store.h"
#include "proto/worker.pb.h"
#include "scheduler/store/record_store.h"

namespace heddle::scheduler {

// A fit takes at most so many tasks, those with the newest workloads. With 128 samples each, they are a
// quarter of a million samples, whose features take some 360 MiB of the worker's disk while it fits; a
// stage may have 1 GiB. Nothing was measured beyond half as many (docs/benchmarks.md, Models of all
// tasks).
inline constexpr int kMostPagedTasks = 2048;

struct SamplePages {
  struct Page {
    v1::SamplePageRef ref;
    int64_t bytes = 0;
  };
  std::vector<Page> pages;
  int tasks = 0;
  int64_t measured = 0;  // measurements that their samples cover
};

// Writes the pages of all tasks from which the search may learn, but at most `most`. Memory holds a few
// pages. Pages that are stored already are written again, so that damaged ones are mended. Errors: those
// of the store and of the disk.
absl::StatusOr<SamplePages> MakeSamplePages(RecordStore* store, const WorkloadId& search, int most,
                                            BlobStore* blobs);

// Sees to it that one stage at a time fits a model of the same kind to all tasks, since that takes
// minutes, and that a fit which fails does not hold up stage after stage. Thread-safe.
class FitsToAll {
 public:
  // After a failure, no stage fits such a model for so long.
  static constexpr absl::Duration kPause = absl::Hours(1);

  // The right to fit such a model, given back when it is destroyed. That counts as a failure unless
  // Succeed was called.
  class Claim {
   public:
    Claim(FitsToAll* fits, const TransferModelId& id) : fits_(fits), id_(id) {}
    ~Claim() { fits_->End(id_, failed_); }
    Claim(const Claim&) = delete;
    Claim& operator=(const Claim&) = delete;
    // The model was fitted, or it was not tried.
    void Succeed() { failed_ = false; }

   private:
    FitsToAll* const fits_;
    const TransferModelId id_;
    bool failed_ = true;
  };
  // Null: another stage has it, or failed less than kPause ago.
  std::unique_ptr<Claim> Take(const TransferModelId& id);

 private:
  void End(const TransferModelId& id, bool failed);

  absl::Mutex mutex_;
  // When a stage may take it again.
  std::map<TransferModelId, absl::Time> next_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace heddle::scheduler
