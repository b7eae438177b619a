// Counts job-seconds spent waiting, by what is waited for.
#pragma once

#include <optional>
#include <set>

#include "absl/time/time.h"
#include "scheduler/core/dispatcher.h"
#include "scheduler/sim/world/world_result.h"

namespace heddle::sim {

using namespace heddle::scheduler;  // NOLINT: the simulator is the scheduler's own

class WaitMeter {
 public:
  // Counts the time since the last call for the jobs that waited then.
  void Pass(absl::Time now) {
    if (since_) {
      const double passed = absl::ToDoubleSeconds(now - *since_);
      total_.cpu += waiting_.cpu * passed;
      total_.device += waiting_.device * passed;
      total_.backoff += waiting_.backoff * passed;
      total_.depth += waiting_.depth * passed;
    }
    since_ = now;
    waiting_ = {};
  }
  // After Pass: the jobs of this dispatcher, as they wait from now on.
  void See(const Dispatcher& dispatcher, bool cpu_slot_free, absl::Time now) {
    std::set<JobId> cpu, device;
    for (const WorkItem& work : dispatcher.ReadyWork())
      (work.device ? device : cpu).insert(work.job);
    waiting_.cpu += static_cast<double>(cpu.size());
    waiting_.device += static_cast<double>(device.size());
    for (const auto& [id, job] : dispatcher.jobs()) {
      if (job.final()) continue;
      bool backoff = job.not_before > now;
      for (const Task& task : job.tasks) backoff |= task.not_before > now;
      waiting_.backoff += backoff;
      waiting_.depth += cpu_slot_free && !job.queue.empty() && !cpu.count(id);
    }
  }
  const WaitSeconds& total() const { return total_; }

 private:
  WaitSeconds total_;
  WaitSeconds waiting_;  // number of jobs
  std::optional<absl::Time> since_;
};

}  // namespace heddle::sim
