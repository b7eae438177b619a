#include "scheduler/service/reads/job_snapshots.h"

#include <algorithm>
#include <iterator>
#include <limits>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "scheduler/store/record_store.h"

namespace heddle::scheduler {
namespace {

// What is shown of a job that was shown as `last` before. Its version stays if nothing has changed.
// Serialised messages are compared: that takes a small part of the time of a comparison by fields.
JobSnapshots::Snapshot Next(const JobSnapshots::Snapshot& last,
                            std::shared_ptr<const v1::Job> job) {
  if (last.job != nullptr && last.job->SerializeAsString() == job->SerializeAsString()) return last;
  const int64_t version = last.version + 1;
  auto versions = std::make_shared<std::vector<int64_t>>(job->tasks_size(), version);
  for (int i = 0; last.job != nullptr && i < std::min(job->tasks_size(), last.job->tasks_size());
       ++i) {
    if (last.job->tasks(i).SerializeAsString() == job->tasks(i).SerializeAsString())
      (*versions)[i] = (*last.task_versions)[i];
  }
  return {version, std::move(job), std::move(versions)};
}

}  // namespace

absl::Status NoSuchJob(const std::string& job) {
  return absl::NotFoundError(absl::StrCat("no job \"", job, "\" (heddle jobs --all lists them)"));
}

void JobSnapshots::Put(Views views) {
  // Nobody else changes snapshots meanwhile, so what takes time holds up no reader.
  absl::MutexLock turn(&turn_);
  std::vector<std::pair<JobId, Snapshot>> next;
  for (auto& [id, view] : views) {
    Snapshot last;
    {
      absl::ReaderMutexLock lock(&mutex_);
      if (const auto found = snapshots_.find(id); found != snapshots_.end()) last = found->second;
    }
    next.emplace_back(id, Next(last, std::move(view)));
  }
  absl::MutexLock lock(&mutex_);
  for (auto& [id, snapshot] : next) {
    changes_ += snapshots_[id].version != snapshot.version;
    snapshots_[id] = std::move(snapshot);
  }
}

void JobSnapshots::Drop(JobId job) {
  absl::MutexLock turn(&turn_);
  absl::MutexLock lock(&mutex_);
  snapshots_.erase(job);
}

void JobSnapshots::Explain(const std::string& reason) {
  absl::MutexLock turn(&turn_);
  absl::MutexLock lock(&mutex_);
  for (auto& [id, snapshot] : snapshots_) {
    if (snapshot.job->finished_unix_ns() != 0 || snapshot.job->reason() == reason) continue;
    auto job = std::make_shared<v1::Job>(*snapshot.job);
    job->set_reason(reason);
    ++snapshot.version;
    ++changes_;
    snapshot.job = std::move(job);
  }
}

int64_t JobSnapshots::changes() const {
  absl::MutexLock lock(&mutex_);
  return changes_;
}

int64_t JobSnapshots::VersionOf(const std::string& job, int task) const {
  absl::ReaderMutexLock lock(&mutex_);
  const auto found = snapshots_.find(JobId{ParseJobName(job)});
  if (found == snapshots_.end()) return 0;
  if (task == 0) return found->second.version;
  const auto& tasks = *found->second.task_versions;
  const auto index = static_cast<size_t>(task) - 1;
  return index < tasks.size() ? tasks[index] : 0;
}

bool JobSnapshots::Has(JobId job) const {
  absl::ReaderMutexLock lock(&mutex_);
  return snapshots_.count(job) > 0;
}

bool JobSnapshots::IsOver(JobId job) const {
  absl::ReaderMutexLock lock(&mutex_);
  const auto found = snapshots_.find(job);
  return found != snapshots_.end() && found->second.job->finished_unix_ns() != 0;
}

absl::StatusOr<JobSnapshots::Snapshot> JobSnapshots::Get(const std::string& job) const {
  const JobId id{ParseJobName(job)};
  {
    absl::ReaderMutexLock lock(&mutex_);
    if (auto it = snapshots_.find(id); it != snapshots_.end()) return it->second;
  }
  const absl::StatusOr<std::shared_ptr<const v1::Job>> stored = history_->Get(id);
  if (absl::IsNotFound(stored.status())) return NoSuchJob(job);
  HEDDLE_RETURN_IF_ERROR(stored.status());
  return Snapshot{0, *stored, nullptr};
}

absl::StatusOr<std::string> JobSnapshots::Owner(const std::string& job) const {
  const JobId id{ParseJobName(job)};
  {
    absl::ReaderMutexLock lock(&mutex_);
    if (auto it = snapshots_.find(id); it != snapshots_.end()) return it->second.job->spec().user();
  }
  absl::StatusOr<std::string> owner = history_->Owner(id);
  if (absl::IsNotFound(owner.status())) return NoSuchJob(job);
  return owner;
}

absl::StatusOr<JobSnapshots::Snapshot> JobSnapshots::WaitForChange(const std::string& job,
                                                                   int64_t version,
                                                                   absl::Duration timeout) const {
  const JobId id{ParseJobName(job)};
  auto changed = [&]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    auto it = snapshots_.find(id);
    return it == snapshots_.end() || it->second.version != version;
  };
  {
    absl::ReaderMutexLock lock(&mutex_);
    mutex_.AwaitWithTimeout(absl::Condition(&changed), timeout);
  }
  return Get(job);
}

std::vector<std::shared_ptr<const v1::Job>> JobSnapshots::Unfinished() const {
  std::vector<std::shared_ptr<const v1::Job>> jobs;
  absl::ReaderMutexLock lock(&mutex_);
  for (const auto& [id, snapshot] : snapshots_) {
    if (snapshot.job->finished_unix_ns() == 0) jobs.push_back(snapshot.job);
  }
  return jobs;
}

absl::StatusOr<JobSnapshots::Page> JobSnapshots::List(const ListOptions& options) const {
  constexpr int64_t kPage = 500;  // finished jobs whose owners are read from the store at a time
  // Those of the history are null here, and are read one by one.
  std::map<JobId, std::shared_ptr<const v1::Job>> jobs;
  {
    absl::ReaderMutexLock lock(&mutex_);
    for (const auto& [id, snapshot] : snapshots_) {
      if (id < options.before && (options.finished_too || snapshot.job->finished_unix_ns() == 0))
        jobs[id] = snapshot.job;
    }
  }
  std::erase_if(jobs,
                [&](const auto& entry) { return !options.shown(entry.second->spec().user()); });
  Page newest;
  size_t bytes = 0;
  // False if there is no more room. The first one is always taken, so that the caller gets on.
  const auto take = [&](const std::shared_ptr<const v1::Job>& job) {
    bytes += job->ByteSizeLong();
    newest.more = !newest.jobs.empty() &&
                  (bytes > options.max_bytes || newest.jobs.size() >= options.max_jobs);
    if (!newest.more) newest.jobs.push_back(job);
    return !newest.more;
  };
  // The jobs of the history lie among those of this process, which had been unfinished for longer.
  JobId before = options.before;
  bool more = options.finished_too;
  while (!newest.more && (more || !jobs.empty())) {
    std::vector<JobOwner> page;
    if (more) {
      HEDDLE_ASSIGN_OR_RETURN(page, history_->OwnersBefore(before, kPage));
    }
    more = static_cast<int64_t>(page.size()) == kPage;
    const JobId first = more ? JobId{page.front().job} : JobId{};
    for (const JobOwner& owner : page) {
      if (options.shown(owner.user)) jobs.emplace(JobId{owner.job}, nullptr);
    }
    // Only from there on is it known that no job is missing.
    while (!jobs.empty() && jobs.rbegin()->first >= first) {
      auto& [id, job] = *jobs.rbegin();
      if (job == nullptr) {
        HEDDLE_ASSIGN_OR_RETURN(job, history_->Get(id));
      }
      if (!take(job)) break;
      jobs.erase(std::prev(jobs.end()));
    }
    before = first;
  }
  return newest;
}

}  // namespace heddle::scheduler
