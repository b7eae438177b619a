#include "scheduler/service/storage/collector.h"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "base/clock.h"
#include "base/status_macros.h"
#include "scheduler/service/storage/blob_sweeper.h"

namespace heddle::scheduler {
namespace {

// Of one read, and of the transaction that removes what it found: candidates with their records, and
// stages; or records that may be old. Some milliseconds. A stage that ends meanwhile waits no longer than
// that.
constexpr int64_t kRowsAtATime = 250;
// Between transactions, at least; and at least as long as the one before took, so that half of the
// writer's time is left to others.
constexpr absl::Duration kPause = absl::Milliseconds(2);
constexpr absl::Duration kWriteLimit = absl::Seconds(30);
constexpr absl::Duration kLookEvery =
    absl::Milliseconds(100);  // between looks for what ends a wait

absl::Status Stopped() {
  return absl::CancelledError("the collection was stopped; what is collected stays so");
}

// Those of the finished jobs, the oldest first, that the rule does not keep.
std::vector<FinishedJob> Chosen(std::vector<FinishedJob> jobs, const KeepRule& rule,
                                absl::Time now) {
  const auto kept = static_cast<size_t>(std::max<int64_t>(0, rule.jobs));
  jobs.resize(jobs.size() - std::min(jobs.size(), kept));
  std::erase_if(jobs, [&](const FinishedJob& job) {
    return absl::FromUnixNanos(job.finished_unix_ns) > now - rule.age;
  });
  return jobs;
}

}  // namespace

absl::Status Collector::Write(Batch batch) {
  struct Answer {
    absl::Notification given;
    absl::Status status;
  };
  const auto answer = std::make_shared<Answer>();
  loop_->writer()->WriteAnswered(std::move(batch), [answer](const absl::Status& status) {
    answer->status = status;
    answer->given.Notify();
  });
  const absl::Time limit = MonotonicNow() + kWriteLimit;
  while (!answer->given.WaitForNotificationWithTimeout(kLookEvery)) {
    HEDDLE_RETURN_IF_ERROR(loop_->writer()->problem());
    if (MonotonicNow() > limit)
      return absl::UnavailableError("the database does not take writes now; collect again later");
  }
  return answer->status;
}

// Pauses afterwards, as long as that took.
absl::Status Collector::WriteStep(StoreChange change) {
  const absl::Time began = MonotonicNow();
  HEDDLE_RETURN_IF_ERROR(Write({std::move(change)}));
  absl::SleepFor(std::max(kPause, MonotonicNow() - began));
  return absl::OkStatus();
}

// The mark comes last. A kill before it leaves a job that has lost rows, and that the next collection
// chooses again.
absl::Status Collector::CollectOne(int64_t job, bool dry_run, const std::function<bool()>& go_on,
                                   v1::CollectProgress::Job* line) {
  for (std::optional<CollectionPlace> place = CollectionPlace(); place;) {
    if (!go_on()) return Stopped();
    HEDDLE_ASSIGN_OR_RETURN(Collection page, store_->CollectionOf(job, *place, kRowsAtATime));
    line->set_rows(line->rows() + page.count());
    line->set_database_bytes(line->database_bytes() + page.bytes);
    place = page.last;
    if (!dry_run && page.count() > 0) HEDDLE_RETURN_IF_ERROR(WriteStep(std::move(page.rows)));
  }
  if (dry_run) return absl::OkStatus();
  if (!go_on()) return Stopped();
  return loop_->MarkCollected(JobId{job});
}

absl::Status Collector::RemoveOldRecords(const OldRecordRule& rule, bool dry_run,
                                         const std::function<bool()>& go_on,
                                         v1::CollectProgress::Total* total) {
  std::optional<OldRecordPlace> after;
  do {
    if (!go_on()) return Stopped();
    HEDDLE_ASSIGN_OR_RETURN(const OldRecords page,
                            store_->FindOldRecords(rule, after, kRowsAtATime));
    total->set_records(total->records() + static_cast<int64_t>(page.ids.size()));
    total->set_record_bytes(total->record_bytes() + page.bytes);
    // The writer looks anew, so that nothing goes that somebody has begun to need since.
    if (!dry_run && !page.ids.empty())
      HEDDLE_RETURN_IF_ERROR(WriteStep(RemoveRecords{rule, after, kRowsAtATime}));
    after = page.last;
  } while (after);
  return absl::OkStatus();
}

absl::StatusOr<v1::CollectProgress::Total> Collector::Collect(
    const KeepRule& rule, bool dry_run, absl::Time now,
    const std::function<bool(const v1::CollectProgress::Job&)>& on_job,
    const std::function<bool()>& go_on) {
  const std::unique_lock running(running_, std::try_to_lock);
  if (!running.owns_lock())
    return absl::ResourceExhaustedError("another collection runs; try again when it is done");
  HEDDLE_ASSIGN_OR_RETURN(std::vector<FinishedJob> finished, store_->Collectable());
  const std::vector<FinishedJob> chosen = Chosen(std::move(finished), rule, now);
  std::set<int64_t> ids;
  for (const FinishedJob& job : chosen) ids.insert(job.id);
  HEDDLE_ASSIGN_OR_RETURN(std::vector<JobBlobs> others, store_->BlobsOfJobs());
  std::erase_if(others, [&](const JobBlobs& job) { return ids.count(job.job) > 0; });
  // Blobs that stay, and those that an earlier line has told.
  HEDDLE_ASSIGN_OR_RETURN(std::set<std::string> told, UsedBlobs(others, *blobs_));
  for (const std::string& kept : loop_->KeptModules()) told.insert(kept);
  std::map<std::string, int64_t> sizes;
  for (const BlobStore::Entry& entry : blobs_->List()) sizes[entry.digest] = entry.size_bytes;

  v1::CollectProgress::Total total;
  // They come first, so that a dry run tells what goes. Those of jobs that are collected now go next time.
  OldRecordRule old;
  old.before_unix_ns = absl::ToUnixNanos(now - rule.age);
  HEDDLE_RETURN_IF_ERROR(RemoveOldRecords(old, dry_run, go_on, &total));
  for (const FinishedJob& job : chosen) {
    if (!go_on()) return Stopped();
    JobBlobs of = job.blobs;
    // Parts are told together with their list, so a list that was told is not read again.
    if (told.contains(of.parts_digest)) of.parts_digest.clear();
    HEDDLE_ASSIGN_OR_RETURN(const std::set<std::string> used, UsedBlobs({of}, *blobs_));
    v1::CollectProgress::Job line;
    line.set_id(JobName(job.id));
    line.set_name(job.name);
    line.set_finished_unix_ns(job.finished_unix_ns);
    for (const std::string& digest : used) {
      const auto size = sizes.find(digest);
      if (size == sizes.end() || !told.insert(digest).second) continue;
      line.set_blobs(line.blobs() + 1);
      line.set_blob_bytes(line.blob_bytes() + size->second);
    }
    HEDDLE_RETURN_IF_ERROR(CollectOne(job.id, dry_run, go_on, &line));
    total.set_jobs(total.jobs() + 1);
    total.set_rows(total.rows() + line.rows());
    total.set_database_bytes(total.database_bytes() + line.database_bytes());
    total.set_blobs(total.blobs() + line.blobs());
    total.set_blob_bytes(total.blob_bytes() + line.blob_bytes());
    if (!on_job(line)) return Stopped();
  }
  if (dry_run || chosen.empty()) return total;
  HEDDLE_ASSIGN_OR_RETURN(const int64_t swept,
                          SweepBlobs(store_, loop_->KeptModules(), now, blobs_));
  total.set_swept_bytes(swept);
  return total;
}

}  // namespace heddle::scheduler
