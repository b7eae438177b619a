// What is still to come, predicted: how much work each unfinished job brings to which lane, how
// long it would take alone, and when it will be done. Pure; kept up to date job by job.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <vector>

#include "scheduler/duration_model.h"
#include "scheduler/job_state.h"

namespace heddle::scheduler {

class Forecast {
 public:
  struct Load {
    int lane = 0;         // of its profile stages
    double cpu_s = 0;     // slot seconds still needed of the CPU lane
    double device_s = 0;  // and of the device lane
    double span_s = 0;    // how long it would take with every slot for itself
    absl::Time deadline = absl::InfiniteFuture();
    double deadline_s = 0;  // its share of DeadlineSeconds
  };

  // Slots there are of a lane; 0 while there is none.
  void SetSlots(int lane, int count);
  // A stage has ended without a fault on a worker of that class.
  void Observe(const LiveStage& stage, const Job& job, absl::Duration unit);
  // Something happened to the job (or to this task of it), which has so many trials left; final and
  // paused jobs bring no load.
  void Refresh(const Job& job, int lane, int trials_left, std::optional<TaskIndex> task);

  const Load* Of(JobId job) const;
  // Seconds until the lane's work is done if it is never idle; of the whole: the longest of these.
  double LaneSeconds(int lane) const;
  double Horizon() const;
  // Until all jobs with a deadline would be done, one after the other.
  double DeadlineSeconds() const { return deadline_s_; }
  // One stage of this work, its whole batch.
  absl::Duration Stage(const Job& job, v1::StageKind kind, std::optional<TaskIndex> task,
                       int units) const;
  // When the job will be done. Where jobs take turns, the others take as much of the slots as it
  // does; else only those with an earlier deadline go before it.
  absl::Time Finish(const Job& job, bool earlier_deadlines_first, absl::Time now) const;
  const DurationModel& durations() const { return durations_; }

 private:
  struct TaskLoad {
    double cpu_s = 0, device_s = 0;
  };
  struct Entry {
    Load load;
    std::vector<TaskLoad> tasks;
    size_t next = 0;  // of tasks: refreshed in turn, for what was learned since
  };
  // `extra`: trials not granted to any task yet, a task's part of them.
  TaskLoad Estimate(const Job& job, TaskIndex index, int extra) const;
  double Seconds(const Job& job, v1::StageKind kind, std::optional<TaskIndex> task) const;
  void Count(const Load& load, double sign);
  double Slots(int lane) const;

  DurationModel durations_;
  std::map<JobId, Entry> jobs_;
  std::vector<int> slots_;
  std::vector<double> lane_s_;  // sums of the loads, slot seconds
  std::set<std::pair<absl::Time, JobId>> deadlines_;
  double deadline_s_ = 0;
};

}  // namespace heddle::scheduler
