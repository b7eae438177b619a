#include "scheduler/service/reads/job_history.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/clock.h"
#include "base/status_macros.h"
#include "scheduler/core/dispatcher.h"
#include "scheduler/ledger/job_ledger.h"

namespace heddle::scheduler {
namespace {

constexpr size_t kMostKept = 256;  // jobs without their trials: some 100 kB each at most

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

// At most one job: that of this id, or if there is none, another one.
JobSelection Only(JobId id, JobSelection::Which which) {
  JobSelection selection{.which = which, .limit = 1};
  if (id.value < selection.before) selection.before = id.value + 1;
  return selection;
}

}  // namespace

absl::StatusOr<std::shared_ptr<const v1::Job>> JobHistory::Get(JobId id) const {
  int64_t forgotten = 0;
  {
    absl::MutexLock lock(&mutex_);
    forgotten = forgotten_;
    if (const auto kept = kept_.find(id); kept != kept_.end()) {
      kept->second.asked = ++asked_;
      return kept->second.job;
    }
  }
  HEDDLE_ASSIGN_OR_RETURN(const std::vector<StoredJob> found,
                          store_->LoadJobs(Only(id, JobSelection::kFinished)));
  if (found.empty() || found.front().row.id != id.value)
    return absl::NotFoundError(absl::StrCat("no finished job ", JobName(id.value)));
  HEDDLE_ASSIGN_OR_RETURN(std::shared_ptr<const v1::Job> job, ViewOf(found.front()));
  absl::MutexLock lock(&mutex_);
  // What was read before a Forget may be outdated.
  if (forgotten != forgotten_) return job;
  if (kept_.size() == kMostKept) {
    kept_.erase(std::min_element(kept_.begin(), kept_.end(), [](const auto& a, const auto& b) {
      return a.second.asked < b.second.asked;
    }));
  }
  kept_[id] = {++asked_, job};
  return job;
}

void JobHistory::Forget(JobId id) {
  absl::MutexLock lock(&mutex_);
  ++forgotten_;
  kept_.erase(id);
}

absl::StatusOr<std::string> JobHistory::Owner(JobId id) const {
  HEDDLE_ASSIGN_OR_RETURN(const std::vector<JobOwner> found,
                          store_->Owners(Only(id, JobSelection::kAll)));
  if (found.empty() || found.front().job != id.value)
    return absl::NotFoundError(absl::StrCat("no job ", JobName(id.value)));
  return found.front().user;
}

absl::StatusOr<std::vector<JobOwner>> JobHistory::OwnersBefore(JobId before, int64_t limit) const {
  return store_->Owners({.which = JobSelection::kFinished, .before = before.value, .limit = limit});
}

}  // namespace heddle::scheduler
