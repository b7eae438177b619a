// Modules that users wait for while they are compiled on demand. Thread-safe.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "proto/jobs.pb.h"
#include "scheduler/core/ids.h"
#include "scheduler/core/job_state.h"

namespace heddle::scheduler {

class ModuleRequests {
 public:
  struct Result {
    FaultInfo fault;
    std::string digest;  // empty: the compilation failed, as `fault` says
  };

  // The digest of the module if it was compiled before, else nullopt: it is requested as `fetch`.
  std::optional<std::string> Begin(FetchId fetch, JobId job, v1::ScheduleChoice choice);
  // Waits for at most `timeout`. Nullopt: not ended yet.
  std::optional<Result> Wait(FetchId fetch, absl::Duration timeout) const;
  // Nobody waits any more.
  void Forget(FetchId fetch);

  // Which schedules the module takes; the best ones if nobody waits for it.
  v1::ScheduleChoice ChoiceOf(FetchId fetch) const;
  void SetDigest(FetchId fetch, const std::string& digest);
  // A module is kept for later requests unless it has the best schedules, which may get better.
  void End(FetchId fetch, const FaultInfo& fault);

 private:
  struct Request {
    JobId job;
    v1::ScheduleChoice choice = v1::SCHEDULE_BEST;
    bool ended = false;
    Result result;
  };

  mutable absl::Mutex mutex_;
  std::map<FetchId, Request> requests_ ABSL_GUARDED_BY(mutex_);
  std::map<std::pair<JobId, v1::ScheduleChoice>, std::string> modules_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace heddle::scheduler
