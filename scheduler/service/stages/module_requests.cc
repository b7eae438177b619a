#include "scheduler/service/stages/module_requests.h"

namespace heddle::scheduler {

std::optional<std::string> ModuleRequests::Begin(FetchId fetch, JobId job,
                                                 v1::ScheduleChoice choice) {
  absl::MutexLock lock(&mutex_);
  const auto made = modules_.find({job, choice});
  if (made != modules_.end()) return made->second;
  requests_[fetch] = {job, choice, false, {}};
  return std::nullopt;
}

std::optional<ModuleRequests::Result> ModuleRequests::Wait(FetchId fetch,
                                                           absl::Duration timeout) const {
  auto ended = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return requests_.at(fetch).ended; };
  absl::MutexLock lock(&mutex_);
  if (!mutex_.AwaitWithTimeout(absl::Condition(&ended), timeout)) return std::nullopt;
  return requests_.at(fetch).result;
}

void ModuleRequests::Forget(FetchId fetch) {
  absl::MutexLock lock(&mutex_);
  requests_.erase(fetch);
}

v1::ScheduleChoice ModuleRequests::ChoiceOf(FetchId fetch) const {
  absl::MutexLock lock(&mutex_);
  const auto request = requests_.find(fetch);
  return request == requests_.end() ? v1::SCHEDULE_BEST : request->second.choice;
}

void ModuleRequests::SetDigest(FetchId fetch, const std::string& digest) {
  absl::MutexLock lock(&mutex_);
  const auto request = requests_.find(fetch);
  if (request != requests_.end()) request->second.result.digest = digest;
}

void ModuleRequests::End(FetchId fetch, const FaultInfo& fault) {
  absl::MutexLock lock(&mutex_);
  const auto found = requests_.find(fetch);
  if (found == requests_.end()) return;
  Request& request = found->second;
  request.ended = true;
  request.result.fault = fault;
  if (request.choice != v1::SCHEDULE_BEST && !request.result.digest.empty())
    modules_[{request.job, request.choice}] = request.result.digest;
}

void ModuleRequests::Drop(JobId job) {
  absl::MutexLock lock(&mutex_);
  std::erase_if(modules_, [&](const auto& made) { return made.first.first == job; });
}

std::vector<std::string> ModuleRequests::Kept() const {
  absl::MutexLock lock(&mutex_);
  std::vector<std::string> digests;
  for (const auto& [of, digest] : modules_) digests.push_back(digest);
  return digests;
}

}  // namespace heddle::scheduler
