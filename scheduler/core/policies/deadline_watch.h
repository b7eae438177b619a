// Which job with a deadline has no time to wait: the first by deadline that may still meet it, and
// would miss it if others' stages got in its way.
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

// What the predictive policy keeps of a job.
struct PlannedJob {
  bool runs = false;
  int64_t tenant = 0;
  int live = 0;                          // stages
  bool turn = false;                     // on the CPU, not over
  bool shared = false;                   // in the group of kShared
  const Forecast::Load* load = nullptr;  // as long as it runs
  // Of jobs with a deadline.
  JobParams params;
  bool measured = false;
  int lane = 0;
  int64_t priority = 0;
};

// Predictions are off, most of all those of a job that has just begun; it is given up for late
// only when no more than this share of its time is left.
inline constexpr double kHopeful = 0.2;

class DeadlineWatch {
 public:
  using Due = std::pair<absl::Time, JobId>;

  // A job that runs; it stays where it is until it is removed.
  void Add(Due due, const PlannedJob* job) { jobs_.insert_or_assign(due, job), Look(); }
  void Remove(Due due) {
    if (jobs_.erase(due) > 0) Look();
  }
  // Something about one of the jobs has changed.
  void Look() { until_ = absl::InfinitePast(); }
  // Adds jobs whose place has changed to `stale`.
  void Find(const PolicyView& view, absl::Time now, std::vector<JobId>* stale);

  const std::optional<Due>& tight() const { return tight_; }
  // Of tight(), as of the last Find.
  const PlannedJob& tight_job() const { return *tight_job_; }

 private:
  std::map<Due, const PlannedJob*> jobs_;
  std::optional<Due> tight_;
  const PlannedJob* tight_job_ = nullptr;
  // The answer is the same until then if nothing happens to the jobs or to the list of slots.
  absl::Time until_ = absl::InfinitePast();
  int64_t slots_ = -1;
  std::vector<double> before_;  // by lane, in Find
};

}  // namespace heddle::scheduler
