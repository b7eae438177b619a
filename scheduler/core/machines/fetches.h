// Modules that users ask for. Each is compiled on demand, independently of the job's own stages,
// and is kept only until the call ends.
#pragma once

#include <map>
#include <optional>

#include "absl/time/time.h"
#include "scheduler/core/job_state.h"
#include "scheduler/core/machines/effects.h"
#include "scheduler/core/machines/retry.h"

namespace heddle::scheduler {

struct Fetch {
  FetchId id;
  JobId job;
  std::optional<AttemptId> live;
  int failures = 0;  // infrastructure faults in a row
  absl::Time not_before = absl::InfinitePast();
};

class Fetches {
 public:
  // `job` is null if there is no such job. The fetch ends with a user fault if the job is missing,
  // has failed, or is not imported yet.
  void Request(const FetchRequested& event, const Job* job, Effects* effects);
  // Returns the stage that has to be cancelled, if one runs.
  std::optional<AttemptId> Abandon(FetchId id);
  void Started(FetchId id, AttemptId attempt) { fetches_.at(jobs_.at(id)).at(id).live = attempt; }
  void StageEnded(FetchId id, const StageFinished& event, const DispatcherOptions& options,
                  Effects* effects);

  std::optional<JobId> JobOf(FetchId id) const;
  const std::map<FetchId, Fetch>& Of(JobId job) const;

 private:
  void Forget(FetchId id);

  std::map<FetchId, JobId> jobs_;
  std::map<JobId, std::map<FetchId, Fetch>> fetches_;  // never empty
};

}  // namespace heddle::scheduler
