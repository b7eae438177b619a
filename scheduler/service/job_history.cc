#include "scheduler/service/job_history.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/clock.h"
#include "base/status_macros.h"
#include "scheduler/core/dispatcher.h"
#include "scheduler/ledger/job_ledger.h"

namespace heddle::scheduler {
namespace {

constexpr absl::Duration kKept = absl::Seconds(30);
constexpr size_t kManyCandidates = 5000;  // to read them takes some ten milliseconds
constexpr size_t kMostKept = 64;

// The job as a scheduler shows it that has just loaded it. No policy and no slot affects a finished
// job.
absl::StatusOr<std::shared_ptr<const v1::Job>> ViewOf(const StoredJob& stored) {
  HEDDLE_ASSIGN_OR_RETURN(std::unique_ptr<Policy> policy, MakePolicy(kDefaultPolicy));
  Dispatcher dispatcher(std::move(policy));
  JobLedger ledger;
  const absl::Time now = MonotonicNow();
  dispatcher.Restore(ledger.Load(stored, now, absl::Now()));
  return std::make_shared<const v1::Job>(ledger.View(dispatcher, JobId{stored.row.id}, now));
}

}  // namespace

absl::StatusOr<std::shared_ptr<const v1::Job>> JobHistory::Get(JobId id) const {
  HEDDLE_ASSIGN_OR_RETURN(const std::vector<std::shared_ptr<const v1::Job>> found,
                          Before(JobId{id.value + 1}, 1));
  if (found.empty() || found.front()->id() != JobName(id.value))
    return absl::NotFoundError(absl::StrCat("no finished job ", JobName(id.value)));
  return found.front();
}

absl::StatusOr<std::vector<std::shared_ptr<const v1::Job>>> JobHistory::Before(
    JobId before, int64_t limit) const {
  const absl::Time now = MonotonicNow();
  {
    absl::MutexLock lock(&mutex_);
    std::erase_if(kept_, [&](const auto& read) { return now - read.second.time > kKept; });
    const auto kept = kept_.find({before, limit});
    if (kept != kept_.end()) return kept->second.jobs;
  }
  HEDDLE_ASSIGN_OR_RETURN(
      const std::vector<StoredJob> found,
      store_->LoadJobs({.which = JobSelection::kFinished, .before = before.value, .limit = limit}));
  std::vector<std::shared_ptr<const v1::Job>> jobs;
  size_t candidates = 0;
  for (const StoredJob& stored : found) {
    HEDDLE_ASSIGN_OR_RETURN(jobs.emplace_back(), ViewOf(stored));
    candidates += stored.candidates.size();
  }
  if (candidates >= kManyCandidates) {
    absl::MutexLock lock(&mutex_);
    if (kept_.size() < kMostKept) kept_[{before, limit}] = {now, jobs};
  }
  return jobs;
}

}  // namespace heddle::scheduler
