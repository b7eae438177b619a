// Tells when a job's deadline seems out of reach, or within reach again.
//
// An estimate costs a look at all jobs, so it is made at most every 10 s or 1 % of the time that is
// left. It is told only when it changes materially, so that one that trembles about the deadline
// is told once.
#pragma once

#include <functional>
#include <map>

#include "absl/time/time.h"
#include "scheduler/core/job_state.h"
#include "scheduler/core/machines/effects.h"

namespace heddle::scheduler {

class Deadlines {
 public:
  // Something about the job may have changed. `expected_end` estimates when it will be done; it is
  // asked only where the estimate is due.
  void Check(const Job& job, const std::function<absl::Time()>& expected_end, Effects* effects);
  // The latest estimate; InfiniteFuture without a deadline.
  absl::Time EstimatedEnd(JobId job) const;

 private:
  struct Estimate {
    bool told = false, late = false;
    absl::Time finish;                           // as told
    absl::Time latest = absl::InfiniteFuture();  // as estimated last
    absl::Time look = absl::InfinitePast();      // the next look though nothing happens
    absl::Time next = absl::InfinitePast();      // no new estimate before this
  };
  std::map<JobId, Estimate> estimates_;  // of unfinished jobs with a deadline
};

}  // namespace heddle::scheduler
