// What is still to come, predicted: how much work each unfinished job brings to which lane, how
// long it would take alone, and when it will be done. Pure; kept up to date job by job.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <vector>

#include "scheduler/core/duration_model.h"
#include "scheduler/core/job_state.h"

namespace heddle::scheduler {

class Forecast {
 public:
  struct Load {
    int lane = 0;         // of its profile stages
    double cpu_s = 0;     // slot seconds still needed of the CPU lane
    double device_s = 0;  // and of the device lane
    double joint_s = 0;   // of the CPU lane, with what its device displaces there
    double span_s = 0;    // how long it would take with every slot for itself
    double share_s = 0;   // and the slot that is busiest with it meanwhile: the rest it stands idle
    absl::Time deadline = absl::InfiniteFuture();
    int most_ready = 0;     // candidates it can still have to measure at a time
    double deadline_s = 0;  // its share of DeadlineSeconds
  };

  // Slots there are of a lane; 0 while there is none. Each of a device lane keeps so many CPU slots
  // from work while it is busy.
  void SetSlots(int lane, int count, double displaced);
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
  // Until the candidates the job has in flight are built and measured, the builds first.
  absl::Duration InFlight(const Job& job, int lane) const;
  // When the job will be done. Where jobs take turns, the others take as much of the slots as it
  // does; else only those with an earlier deadline go before it.
  absl::Time Finish(const Job& job, bool earlier_deadlines_first, absl::Time now) const;
  const DurationModel& durations() const { return durations_; }

 private:
  struct TaskLoad {
    double cpu_s = 0, device_s = 0;
    double span_s = 0;  // its rounds one after the other, each with every slot
  };
  struct Entry {
    Load load;
    std::vector<TaskLoad> tasks;
    size_t next = 0;  // of tasks: refreshed in turn, for what was learned since
  };
  // `extra`: trials not granted to any task yet, a task's part of them.
  TaskLoad Estimate(const Job& job, TaskIndex index, int lane, int extra) const;
  double Seconds(const Job& job, v1::StageKind kind, std::optional<TaskIndex> task) const;
  void Count(const Load& load, double sign);
  double Slots(int lane) const;
  double Displaced(int lane) const;
  // Until so much work of one device lane is done if nothing else is.
  double Busiest(double cpu_s, double device_s, int lane) const;

  DurationModel durations_;
  std::map<JobId, Entry> jobs_;
  struct Lane {
    int slots = 0;
    double displaced = 0;
  };
  std::vector<Lane> lanes_;
  // Sums of the loads, slot seconds; of the CPU's lane: with what devices displace.
  std::vector<double> lane_s_;
  std::map<std::pair<absl::Time, JobId>, const Load*> deadlines_;
  double deadline_s_ = 0;
};

}  // namespace heddle::scheduler
