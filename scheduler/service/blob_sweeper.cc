#include "scheduler/service/blob_sweeper.h"

#include <spdlog/spdlog.h>

#include <set>

#include "absl/time/clock.h"
#include "base/status_macros.h"
#include "scheduler/service/stored_parts.h"

namespace heddle::scheduler {
namespace {

constexpr absl::Duration kPause = absl::Hours(1);

}  // namespace

absl::StatusOr<int64_t> SweepBlobs(RecordStore* store, const std::vector<std::string>& kept,
                                   absl::Time now, BlobStore* blobs) {
  std::set<std::string> used(kept.begin(), kept.end()), lists;
  HEDDLE_ASSIGN_OR_RETURN(const std::vector<JobBlobs> jobs, store->BlobsOfJobs());
  for (const JobBlobs& job : jobs) {
    used.insert(job.blobs.begin(), job.blobs.end());
    // Jobs of the same model share their list.
    if (job.parts_digest.empty() || !lists.insert(job.parts_digest).second) continue;
    const absl::StatusOr<v1::BlobList> parts = ReadParts(job.parts_digest, *blobs);
    // The model of this job cannot be read again, so its parts are of no use.
    if (absl::IsNotFound(parts.status()) || absl::IsDataLoss(parts.status())) continue;
    HEDDLE_RETURN_IF_ERROR(parts.status());
    for (const v1::BlobRef& part : parts->blobs()) used.insert(part.sha256());
  }
  int64_t bytes = 0;
  for (const BlobStore::Entry& entry : blobs->List()) {
    if (used.count(entry.digest) == 0 && entry.used < now - kKeepUnused &&
        blobs->RemoveIfUnusedSince(entry.digest, now - kKeepUnused))
      bytes += entry.size_bytes;
  }
  return bytes;
}

BlobSweeper::BlobSweeper(SchedulerLoop* loop, RecordStore* store, BlobStore* blobs)
    : thread_([this, loop, store, blobs] {
        do {
          const absl::StatusOr<int64_t> bytes =
              SweepBlobs(store, loop->KeptModules(), absl::Now(), blobs);
          if (!bytes.ok()) {
            spdlog::warn("unused blobs are not removed: {}", std::string(bytes.status().message()));
          } else if (*bytes > 0) {
            spdlog::info("removed {} MiB of blobs that no job refers to", *bytes >> 20);
          }
        } while (!stop_.WaitForNotificationWithTimeout(kPause));
      }) {}

BlobSweeper::~BlobSweeper() {
  stop_.Notify();
  thread_.join();
}

}  // namespace heddle::scheduler
