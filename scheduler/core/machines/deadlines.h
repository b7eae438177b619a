// Reports when a job's deadline seems out of reach, or within reach again.
//
// An estimate may look at many jobs (Forecast::Finish). So there is a pause after each one: 1 % of the time that is left
// until the estimated end, but at most 10 s. An estimate is reported only if it has changed materially, so
// one that fluctuates around the deadline is reported once.
#pragma once

#include <functional>
#include <map>

#include "absl/time/time.h"
#include "scheduler/core/job_state.h"
#include "scheduler/core/machines/effects.h"

namespace heddle::scheduler {

class Deadlines {
 public:
  // Call when something about the job may have changed. `expected_end` estimates when the job will
  // be done; it is called only if an estimate is due.
  void Check(const Job& job, const std::function<absl::Time()>& expected_end, Effects* effects);
  // The latest estimate; InfiniteFuture without a deadline.
  absl::Time EstimatedEnd(JobId job) const;

 private:
  struct Estimate {
    bool told = false, late = false;
    absl::Time finish;                           // as reported last
    absl::Time latest = absl::InfiniteFuture();  // as estimated last
    absl::Time look = absl::InfinitePast();      // when to look again even if nothing happens
    absl::Time next = absl::InfinitePast();      // no new estimate before this
  };
  std::map<JobId, Estimate> estimates_;  // of unfinished jobs with a deadline
};

}  // namespace heddle::scheduler
