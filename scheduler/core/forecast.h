// Predicts the remaining work: how much each unfinished job brings to each lane, how long the job
// would take alone, and when it will end. Pure, and kept up to date job by job.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <vector>

#include "scheduler/core/due_work.h"
#include "scheduler/core/duration_model.h"
#include "scheduler/core/job_state.h"
#include "scheduler/core/max_tree.h"

namespace heddle::scheduler {

class Forecast {
 public:
  struct Load {
    int lane = 0;         // the lane of its profile stages
    double cpu_s = 0;     // slot-seconds still needed on the CPU lane
    double device_s = 0;  // slot-seconds still needed on the device lane
    double joint_s = 0;   // cpu_s plus the CPU slot-seconds that its device stages block
    double span_s = 0;    // time to completion if it had all slots to itself
    // Of span_s, the time during which the job's busiest lane works; the rest it idles.
    double share_s = 0;
    absl::Time deadline = absl::InfiniteFuture();
    int most_ready = 0;     // most candidates that it can have waiting at the same time
    double deadline_s = 0;  // its share of DeadlineSeconds
  };

  // Sets the number of slots of a lane, 0 if there is none. A busy slot of a device lane keeps
  // `displaced` CPU slots from work.
  void SetSlots(int lane, int count, double displaced);
  // A stage of `job` has ended without a fault and took `unit` per unit of work (duration_model.h).
  void Observe(const LiveStage& stage, const Job& job, absl::Duration unit);
  // Call when something happened to the job, or only to `task` if that is given. `trials_left` is
  // what the job may still measure. Final and paused jobs bring no load.
  void Refresh(const Job& job, int lane, int trials_left, std::optional<TaskIndex> task);

  const Load* Of(JobId job) const;
  // LaneSeconds: time until the lane's work is done if the lane never idles. Horizon: the maximum
  // over all lanes, a lower bound on the makespan.
  double LaneSeconds(int lane) const;
  double Horizon() const { return horizon_.Max(); }
  // Seconds until all jobs with a deadline are done if they run one after the other.
  double DeadlineSeconds() const { return deadline_s_; }
  // Predicted duration of one stage with `units` candidates.
  absl::Duration Stage(const Job& job, v1::StageKind kind, std::optional<TaskIndex> task,
                       int units) const;
  // Time until all candidates in flight are built and then measured.
  absl::Duration InFlight(const Job& job, int lane) const;
  // When the job will be done. With `earlier_deadlines_first`, only jobs with an earlier deadline
  // run before it. Otherwise jobs take turns, and each other job takes at most as many slot-seconds
  // as this one until it ends; then all jobs are looked at.
  absl::Time Finish(const Job& job, bool earlier_deadlines_first, absl::Time now) const;
  const DurationModel& durations() const { return durations_; }

 private:
  struct TaskLoad {
    double cpu_s = 0, device_s = 0;
    double span_s = 0;  // its rounds one after the other, each with all slots
  };
  struct Entry {
    Load load;
    std::vector<TaskLoad> tasks;
    size_t next = 0;  // the task to refresh next, in turn, with the durations learned since
  };
  // `extra` is the task's part of the trials that are not granted to any task yet.
  TaskLoad Estimate(const Job& job, TaskIndex index, int lane, int extra) const;
  double Seconds(const Job& job, v1::StageKind kind, std::optional<TaskIndex> task) const;
  void Count(const Load& load, double sign);
  void Add(int lane, double seconds);
  double Slots(int lane) const;
  double Displaced(int lane) const;
  // Seconds until this work of one job is done on its busiest lane if nothing else runs.
  double Busiest(double cpu_s, double device_s, int lane) const;

  DurationModel durations_;
  std::map<JobId, Entry> jobs_;
  struct Lane {
    int slots = 0;
    double displaced = 0;
  };
  std::vector<Lane> lanes_;
  // Slot-seconds of all jobs, by lane. The CPU lane's sum includes what devices displace (joint_s).
  std::vector<double> lane_s_;
  MaxTree horizon_;  // of LaneSeconds, by lane
  DueWork due_;
  double deadline_s_ = 0;
};

}  // namespace heddle::scheduler
