// Finds the tight job: of the jobs that can still meet their deadline, the earliest that would miss
// it if stages of other jobs delayed it. The predictive policy keeps slots free for this job.
//
// A job is tight if the time left until its deadline is less than what it needs: the time in which
// the jobs with earlier deadlines finish, plus its own span with a factor for contention. A job
// that cannot meet its deadline any more is skipped.
#pragma once

#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "scheduler/core/forecast.h"
#include "scheduler/core/job_state.h"
#include "scheduler/core/policy.h"

namespace heddle::scheduler {

// What the predictive policy remembers of a job.
struct PlannedJob {
  bool runs = false;
  int64_t tenant = 0;
  int live = 0;                          // live stages
  bool turn = false;                     // its turn on the CPU has begun and is not over
  bool shared = false;                   // its latest urgency was kShared
  const Forecast::Load* load = nullptr;  // null unless the job runs
  // Used only for jobs with a deadline.
  JobParams params;
  bool measured = false;
  int lane = 0;
  int64_t priority = 0;
};

// A job is considered unable to meet its deadline only when the time left is less than this share
// of its predicted span. The share is small because predictions err, most of all for a job that has
// just begun.
inline constexpr double kHopeful = 0.2;

class DeadlineWatch {
 public:
  using Due = std::pair<absl::Time, JobId>;

  // Adds a running job. `job` must stay valid until Remove.
  void Add(Due due, const PlannedJob* job) { jobs_.insert_or_assign(due, job), Look(); }
  void Remove(Due due) {
    if (jobs_.erase(due) > 0) Look();
  }
  // Call when something about one of the jobs has changed: the next Find looks at them again.
  void Look() { until_ = absl::InfinitePast(); }
  // Finds the tight job. If it is another one than before, appends the two to `stale`: their ranks change. Those of the jobs
  // between them do not, however many there are (Predictive::HoldsBack).
  void Find(const PolicyView& view, absl::Time now, std::vector<JobId>* stale);

  const std::optional<Due>& tight() const { return tight_; }
  // Valid while tight() has a value.
  const PlannedJob& tight_job() const { return *tight_job_; }

 private:
  std::map<Due, const PlannedJob*> jobs_;
  std::optional<Due> tight_;
  const PlannedJob* tight_job_ = nullptr;
  // The answer holds until this time unless the jobs or the list of slots change.
  absl::Time until_ = absl::InfinitePast();
  int64_t slots_ = -1;
  std::vector<double> before_;  // slot-seconds of earlier deadlines by lane; used within Find
};

}  // namespace heddle::scheduler
