#include "scheduler/service/job_snapshots.h"

#include <google/protobuf/util/message_differencer.h>

#include <algorithm>
#include <iterator>
#include <limits>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "scheduler/store/record_store.h"

namespace heddle::scheduler {

void JobSnapshots::Put(Views views) {
  absl::MutexLock lock(&mutex_);
  for (auto& [id, view] : views) {
    Snapshot& snapshot = snapshots_[id];
    const bool same = snapshot.job != nullptr &&
                      google::protobuf::util::MessageDifferencer::Equals(*snapshot.job, *view);
    if (same) continue;
    ++snapshot.version;
    snapshot.job = std::move(view);
  }
}

void JobSnapshots::Explain(const std::string& reason) {
  absl::MutexLock lock(&mutex_);
  for (auto& [id, snapshot] : snapshots_) {
    if (snapshot.job->finished_unix_ns() != 0 || snapshot.job->reason() == reason) continue;
    auto job = std::make_shared<v1::Job>(*snapshot.job);
    job->set_reason(reason);
    ++snapshot.version;
    snapshot.job = std::move(job);
  }
}

bool JobSnapshots::Has(JobId job) const {
  absl::MutexLock lock(&mutex_);
  return snapshots_.count(job) > 0;
}

absl::StatusOr<JobSnapshots::Snapshot> JobSnapshots::Get(const std::string& job) const {
  const JobId id{ParseJobName(job)};
  {
    absl::MutexLock lock(&mutex_);
    if (auto it = snapshots_.find(id); it != snapshots_.end()) return it->second;
  }
  const absl::StatusOr<std::shared_ptr<const v1::Job>> stored = history_->Get(id);
  if (absl::IsNotFound(stored.status()))
    return absl::NotFoundError(absl::StrCat("no job \"", job, "\" (heddle jobs --all lists them)"));
  HEDDLE_RETURN_IF_ERROR(stored.status());
  return Snapshot{0, *stored};
}

absl::StatusOr<JobSnapshots::Snapshot> JobSnapshots::WaitForChange(const std::string& job,
                                                                   int64_t version,
                                                                   absl::Duration timeout) const {
  const JobId id{ParseJobName(job)};
  auto changed = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    auto it = snapshots_.find(id);
    return it == snapshots_.end() || it->second.version != version;
  };
  {
    absl::MutexLock lock(&mutex_);
    mutex_.AwaitWithTimeout(absl::Condition(&changed), timeout);
  }
  return Get(job);
}

absl::StatusOr<std::vector<std::shared_ptr<const v1::Job>>> JobSnapshots::List(
    bool finished_too, size_t max_bytes) const {
  constexpr int64_t kPage = 64;  // finished jobs that are read from the store at a time
  std::map<JobId, std::shared_ptr<const v1::Job>> jobs;
  {
    absl::MutexLock lock(&mutex_);
    for (const auto& [id, snapshot] : snapshots_) {
      if (finished_too || snapshot.job->finished_unix_ns() == 0) jobs[id] = snapshot.job;
    }
  }
  std::vector<std::shared_ptr<const v1::Job>> newest;
  size_t bytes = 0;
  const auto take = [&](const std::shared_ptr<const v1::Job>& job) {
    bytes += job->ByteSizeLong();
    if (bytes <= max_bytes) newest.push_back(job);
    return bytes <= max_bytes;
  };
  // The jobs of the history lie among those of this process, which had been unfinished for longer.
  JobId before{std::numeric_limits<int64_t>::max()};
  bool more = finished_too;
  while (bytes <= max_bytes && (more || !jobs.empty())) {
    std::vector<std::shared_ptr<const v1::Job>> page;
    if (more) {
      HEDDLE_ASSIGN_OR_RETURN(page, history_->Before(before, kPage));
    }
    more = static_cast<int64_t>(page.size()) == kPage;
    const JobId first = more ? JobId{ParseJobName(page.front()->id())} : JobId{};
    for (const auto& job : page) jobs.emplace(JobId{ParseJobName(job->id())}, job);
    // Only from there on is it known that no job is missing.
    while (!jobs.empty() && jobs.rbegin()->first >= first && take(jobs.rbegin()->second))
      jobs.erase(std::prev(jobs.end()));
    before = first;
  }
  std::reverse(newest.begin(), newest.end());
  return newest;
}

}  // namespace heddle::scheduler
