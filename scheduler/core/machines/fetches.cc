#include "scheduler/core/machines/fetches.h"

namespace heddle::scheduler {

void Fetches::Request(const FetchRequested& event, const Job* job, Effects* effects) {
  if (job == nullptr || Is<Importing>(job->phase) || Is<Failed>(job->phase)) {
    effects->Emit(
        EndFetch{event.fetch, {v1::FAULT_USER, "the job has failed, or is not imported yet"}});
    return;
  }
  fetches_[event.fetch] = Fetch{event.fetch, event.job, std::nullopt, 0, absl::InfinitePast()};
}

std::optional<AttemptId> Fetches::Abandon(FetchId id) {
  const auto found = fetches_.find(id);
  if (found == fetches_.end()) return std::nullopt;
  const std::optional<AttemptId> live = found->second.live;
  fetches_.erase(found);
  return live;
}

void Fetches::StageEnded(FetchId id, const StageFinished& event, const DispatcherOptions& options,
                         Effects* effects) {
  const auto found = fetches_.find(id);
  if (found == fetches_.end()) return;
  Fetch& fetch = found->second;
  fetch.live.reset();
  const bool over = event.fault.kind == v1::FAULT_NONE || event.fault.kind == v1::FAULT_USER ||
                    !Retry(options, event, effects->now(), &fetch.failures, &fetch.not_before);
  if (!over) return;
  effects->Emit(EndFetch{id, event.fault});
  fetches_.erase(found);
}

std::optional<JobId> Fetches::JobOf(FetchId id) const {
  const auto found = fetches_.find(id);
  return found == fetches_.end() ? std::nullopt : std::optional(found->second.job);
}

}  // namespace heddle::scheduler
