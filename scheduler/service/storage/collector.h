// Collects finished jobs: removes what nobody needs of an old job, and records that are old, in steps that
// hold nobody up.
// proto/store.proto says what goes and what stays.
#pragma once

#include <functional>
#include <mutex>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/files/blob_store.h"
#include "proto/store.pb.h"
#include "scheduler/service/scheduler_loop.h"
#include "scheduler/service/storage/keep_rule.h"
#include "scheduler/store/record_store.h"

namespace heddle::scheduler {

// Thread-safe.
class Collector {
 public:
  // All outlive this.
  Collector(SchedulerLoop* loop, RecordStore* store, BlobStore* blobs)
      : loop_(loop), store_(store), blobs_(blobs) {}

  // Removes old records, made or retracted longer ago than the rule's age (OldRecordRule). Then collects
  // the jobs that the rule does not keep, the oldest first, and tells each to `on_job` once it is
  // collected; then removes blobs that no job refers to. With `dry_run` it only tells.
  // `go_on` is asked before each step. Cancelled: it, or `on_job`, returned false. ResourceExhausted:
  // another collection runs, or the disk is full. A collection that ends early leaves the job that it
  // was at for the next one; the jobs before it are done.
  absl::StatusOr<v1::CollectProgress::Total> Collect(
      const KeepRule& rule, bool dry_run, absl::Time now,
      const std::function<bool(const v1::CollectProgress::Job&)>& on_job,
      const std::function<bool()>& go_on);

 private:
  // Adds to `line` what it found.
  absl::Status CollectOne(int64_t job, bool dry_run, const std::function<bool()>& go_on,
                          v1::CollectProgress::Job* line);
  absl::Status RemoveOldRecords(const OldRecordRule& rule, bool dry_run,
                                const std::function<bool()>& go_on,
                                v1::CollectProgress::Total* total);
  absl::Status WriteStep(StoreChange change);
  absl::Status Write(Batch batch);

  SchedulerLoop* const loop_;
  RecordStore* const store_;
  BlobStore* const blobs_;
  std::mutex running_;
};

}  // namespace heddle::scheduler
