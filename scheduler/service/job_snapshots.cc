#include "scheduler/service/job_snapshots.h"

#include <google/protobuf/util/message_differencer.h>

#include <algorithm>
#include <iterator>
#include <limits>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "scheduler/store/record_store.h"

namespace heddle::scheduler {
namespace {

using google::protobuf::util::MessageDifferencer;

bool EqualButForTasks(const v1::Job& a, const v1::Job& b) {
  MessageDifferencer differencer;
  differencer.IgnoreField(v1::Job::descriptor()->FindFieldByNumber(v1::Job::kTasksFieldNumber));
  return differencer.Compare(a, b);
}

}  // namespace

absl::Status NoSuchJob(const std::string& job) {
  return absl::NotFoundError(absl::StrCat("no job \"", job, "\" (heddle jobs --all lists them)"));
}

void JobSnapshots::Put(Views views) {
  absl::MutexLock lock(&mutex_);
  for (auto& [id, view] : views) {
    Snapshot& snapshot = snapshots_[id];
    const int64_t version = snapshot.version + 1;
    auto versions = std::make_shared<std::vector<int64_t>>(view->tasks_size(), version);
    bool same = snapshot.job != nullptr && snapshot.job->tasks_size() == view->tasks_size() &&
                EqualButForTasks(*snapshot.job, *view);
    for (int i = 0; snapshot.job != nullptr && i < view->tasks_size(); ++i) {
      if (i < snapshot.job->tasks_size() &&
          MessageDifferencer::Equals(snapshot.job->tasks(i), view->tasks(i))) {
        (*versions)[i] = (*snapshot.task_versions)[i];
      } else {
        same = false;
      }
    }
    if (same) continue;
    ++changes_;
    snapshot.version = version;
    snapshot.job = std::move(view);
    snapshot.task_versions = std::move(versions);
  }
}

void JobSnapshots::Explain(const std::string& reason) {
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
  if (absl::IsNotFound(stored.status())) return NoSuchJob(job);
  HEDDLE_RETURN_IF_ERROR(stored.status());
  return Snapshot{0, *stored, nullptr};
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

std::vector<std::shared_ptr<const v1::Job>> JobSnapshots::Unfinished() const {
  std::vector<std::shared_ptr<const v1::Job>> jobs;
  absl::MutexLock lock(&mutex_);
  for (const auto& [id, snapshot] : snapshots_) {
    if (snapshot.job->finished_unix_ns() == 0) jobs.push_back(snapshot.job);
  }
  return jobs;
}

absl::StatusOr<JobSnapshots::Page> JobSnapshots::List(const ListOptions& options) const {
  constexpr int64_t kPage = 64;  // finished jobs that are read from the store at a time
  std::map<JobId, std::shared_ptr<const v1::Job>> jobs;
  {
    absl::MutexLock lock(&mutex_);
    for (const auto& [id, snapshot] : snapshots_) {
      if (id < options.before && (options.finished_too || snapshot.job->finished_unix_ns() == 0))
        jobs[id] = snapshot.job;
    }
  }
  Page newest;
  size_t bytes = 0;
  // False if there is no more room. The first one is always taken, so that the caller gets on.
  const auto take = [&](const std::shared_ptr<const v1::Job>& job) {
    if (!options.shown(*job)) return true;
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
  return newest;
}

}  // namespace heddle::scheduler
