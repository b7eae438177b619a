#include "scheduler/service/job_snapshots.h"

#include <google/protobuf/util/message_differencer.h>

#include "absl/strings/str_cat.h"
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
    snapshot.version = version;
    snapshot.job = std::move(view);
    snapshot.task_versions = std::move(versions);
  }
}

absl::StatusOr<JobSnapshots::Snapshot> JobSnapshots::Get(const std::string& job) const {
  absl::MutexLock lock(&mutex_);
  auto it = snapshots_.find(JobId{ParseJobName(job)});
  if (it == snapshots_.end()) return NoSuchJob(job);
  return it->second;
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

std::vector<std::shared_ptr<const v1::Job>> JobSnapshots::List(bool finished_too) const {
  std::vector<std::shared_ptr<const v1::Job>> jobs;
  absl::MutexLock lock(&mutex_);
  for (const auto& [id, snapshot] : snapshots_) {
    if (finished_too || snapshot.job->finished_unix_ns() == 0) jobs.push_back(snapshot.job);
  }
  return jobs;
}

}  // namespace heddle::scheduler
