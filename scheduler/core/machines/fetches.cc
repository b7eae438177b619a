#include "scheduler/core/machines/fetches.h"

namespace heddle::scheduler {

void Fetches::Request(const FetchRequested& event, const Job* job, Effects* effects) {
  if (job == nullptr || Is<Importing>(job->phase) || Is<Failed>(job->phase)) {
    effects->Emit(
        EndFetch{event.fetch, {v1::FAULT_USER, "the job has failed, or is not imported yet"}});
    return;
  }
  jobs_[event.fetch] = event.job;
  fetches_[event.job][event.fetch] = {event.fetch, event.job, std::nullopt, 0,
                                      absl::InfinitePast()};
}

std::optional<AttemptId> Fetches::Abandon(FetchId id) {
  const std::optional<JobId> job = JobOf(id);
  if (!job) return std::nullopt;
  const std::optional<AttemptId> live = fetches_.at(*job).at(id).live;
  Forget(id);
  return live;
}

void Fetches::StageEnded(FetchId id, const StageFinished& event, const DispatcherOptions& options,
                         Effects* effects) {
  const std::optional<JobId> job = JobOf(id);
  if (!job) return;
  Fetch& fetch = fetches_.at(*job).at(id);
  fetch.live.reset();
  const bool over = event.fault.kind == v1::FAULT_NONE || event.fault.kind == v1::FAULT_USER ||
                    !Retry(options, event, effects->now(), &fetch.failures, &fetch.not_before);
  if (!over) return;
  effects->Emit(EndFetch{id, event.fault});
  Forget(id);
}

std::optional<JobId> Fetches::JobOf(FetchId id) const {
  const auto found = jobs_.find(id);
  return found == jobs_.end() ? std::nullopt : std::optional(found->second);
}

const std::map<FetchId, Fetch>& Fetches::Of(JobId job) const {
  static const std::map<FetchId, Fetch>* const none = new std::map<FetchId, Fetch>();
  const auto found = fetches_.find(job);
  return found == fetches_.end() ? *none : found->second;
}

void Fetches::Forget(FetchId id) {
  const auto of_job = fetches_.find(jobs_.at(id));
  of_job->second.erase(id);
  if (of_job->second.empty()) fetches_.erase(of_job);
  jobs_.erase(id);
}

}  // namespace heddle::scheduler
