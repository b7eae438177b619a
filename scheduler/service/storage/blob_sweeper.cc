#include "scheduler/service/storage/blob_sweeper.h"

#include <spdlog/spdlog.h>

#include "absl/time/clock.h"
#include "base/status_macros.h"
#include "scheduler/service/storage/collector.h"
#include "scheduler/service/storage/stored_parts.h"

namespace heddle::scheduler {
namespace {

constexpr absl::Duration kSweepEvery = absl::Hours(1);

void CollectBy(const KeepRule& rule, Collector* collector, const absl::Notification& stop) {
  const auto go_on = [&] { return !stop.HasBeenNotified(); };
  const auto total = collector->Collect(
      rule, /*dry_run=*/false, absl::Now(), [](const v1::CollectProgress::Job&) { return true; },
      go_on);
  if (!total.ok()) {
    if (go_on())
      spdlog::warn("old jobs are not collected: {}", std::string(total.status().message()));
  } else if (total->jobs() > 0 || total->records() > 0) {
    spdlog::info(
        "collected {} jobs and {} old records by --keep-days and --keep-jobs: {} MiB of the "
        "database, {} MiB of blobs",
        total->jobs(), total->records(), (total->database_bytes() + total->record_bytes()) >> 20,
        total->blob_bytes() >> 20);
  }
}

}  // namespace

absl::StatusOr<std::set<std::string>> UsedBlobs(const std::vector<JobBlobs>& jobs,
                                                const BlobStore& blobs) {
  std::set<std::string> used, lists;
  for (const JobBlobs& job : jobs) {
    used.insert(job.blobs.begin(), job.blobs.end());
    // Jobs of the same model share their list.
    if (job.parts_digest.empty() || !lists.insert(job.parts_digest).second) continue;
    const absl::StatusOr<v1::BlobList> parts = ReadParts(job.parts_digest, blobs);
    if (absl::IsNotFound(parts.status()) || absl::IsDataLoss(parts.status())) continue;
    HEDDLE_RETURN_IF_ERROR(parts.status());
    for (const v1::BlobRef& part : parts->blobs()) used.insert(part.sha256());
  }
  return used;
}

absl::StatusOr<int64_t> SweepBlobs(RecordStore* store, const std::vector<std::string>& kept,
                                   absl::Time now, BlobStore* blobs) {
  HEDDLE_ASSIGN_OR_RETURN(const std::vector<JobBlobs> jobs, store->BlobsOfJobs());
  HEDDLE_ASSIGN_OR_RETURN(std::set<std::string> used, UsedBlobs(jobs, *blobs));
  used.insert(kept.begin(), kept.end());
  int64_t bytes = 0;
  for (const BlobStore::Entry& entry : blobs->List()) {
    if (used.count(entry.digest) == 0 && entry.used < now - kKeepUnused &&
        blobs->RemoveIfUnusedSince(entry.digest, now - kKeepUnused))
      bytes += entry.size_bytes;
  }
  return bytes;
}

BlobSweeper::BlobSweeper(SchedulerLoop* loop, RecordStore* store, BlobStore* blobs,
                         Collector* collector, const std::optional<KeepRule>& rule)
    : thread_([this, loop, store, blobs, collector, rule] {
        do {
          if (rule) CollectBy(*rule, collector, stop_);
          const absl::StatusOr<int64_t> bytes =
              SweepBlobs(store, loop->KeptModules(), absl::Now(), blobs);
          if (!bytes.ok()) {
            spdlog::warn("unused blobs are not removed: {}", std::string(bytes.status().message()));
          } else if (*bytes > 0) {
            spdlog::info("removed {} MiB of blobs that no job refers to", *bytes >> 20);
          }
        } while (!stop_.WaitForNotificationWithTimeout(kSweepEvery));
      }) {}

BlobSweeper::~BlobSweeper() {
  stop_.Notify();
  thread_.join();
}

}  // namespace heddle::scheduler
