// The scheduler's log of jobs and stages: one line for each change of a job's state, and one for each
// stage that did not do its work. A failed job is a warning that names the reason. Stages that went
// well are lines for --log-level debug.
#pragma once

#include <map>
#include <string>

#include "absl/time/time.h"
#include "scheduler/core/dispatcher.h"
#include "scheduler/store/record_store.h"

namespace heddle::scheduler {

// Belongs to the core thread of the scheduler loop.
class JobLog {
 public:
  // The jobs that the store had.
  void Begin(const Dispatcher& dispatcher);
  // After a step.
  void Observe(const Event& event, const Decisions& decisions, const Dispatcher& dispatcher,
               absl::Time now);
  // A stage ended; `result` is that of SchedulerMetrics::StageEnded.
  static void StageEnded(const StageRow& stage, const StageFinished& end,
                         const std::string& result);

 private:
  struct Known {
    std::string state;
    absl::Time since;  // when this process first knew the job
  };
  void Note(const Job& job, absl::Time now);
  std::map<JobId, Known> unfinished_;
};

}  // namespace heddle::scheduler
