// Modules that users wait for while they are compiled on demand. Thread-safe.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

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

  // Returns the digest if the module was compiled before. Otherwise registers the request as
  // `fetch` and returns nullopt.
  std::optional<std::string> Begin(FetchId fetch, JobId job, v1::ScheduleChoice choice);
  // Waits for at most `timeout`. nullopt: the request has not ended yet.
  std::optional<Result> Wait(FetchId fetch, absl::Duration timeout) const;
  // Call when nobody waits for the module any more.
  void Forget(FetchId fetch);

  // Which schedules the module uses; the best ones if nobody waits for it.
  v1::ScheduleChoice ChoiceOf(FetchId fetch) const;
  void SetDigest(FetchId fetch, const std::string& digest);
  // Ends the request. The digest is kept for later requests, except for the best schedules, which
  // may still improve.
  void End(FetchId fetch, const FaultInfo& fault);
  std::vector<std::string> Kept() const;
  // Forgets the digests of a job that is collected.
  void Drop(JobId job);

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
