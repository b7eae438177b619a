// Machines that come and go: a batch system starts and ends workers by the rule of the autoscaler, and
// takes workers away after a notice.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "scheduler/core/dispatcher.h"
#include "scheduler/sim/scenario.h"
#include "scheduler/sim/world/agenda.h"
#include "scheduler/sim/world/autoscaler_rule.h"
#include "scheduler/sim/world/machines.h"
#include "scheduler/sim/world/workers.h"
#include "scheduler/sim/world/world_result.h"

namespace heddle::sim {

class Supply {
 public:
  // A stage that waits for a slot.
  using Look = std::function<void(const Job& job, const WorkItem& work, absl::Time since)>;
  struct Hooks {
    // The tracker reports the slots of the worker's pool as they are now.
    std::function<void(const std::string& worker)> report;
    // Calls with everything that waits, of every scheduler.
    std::function<void(const Look& look)> for_each_waiting;
    // Whether every job has ended, and nothing needs to come or go any more.
    std::function<bool()> over;
  };
  // All outlive this. Counts in `result`.
  Supply(const Scenario& scenario, Agenda* agenda, Machines* machines, Workers* workers,
         WorldResult* result, Hooks hooks);

  // Plans what happens. At first no worker of a batch system is there.
  void Begin();
  // Adds the time of the workers that are still there to the result. `seconds`: when the last job ended.
  void End(double seconds);

 private:
  struct Class {
    const BatchClass* rules;
    AutoscalerRule rule;
    std::map<int, AutoscalerRule::Instance> instances;  // of those that are there or ordered
    std::map<int, double> since;                        // when it got its machine
    uint64_t starts = 0;
  };
  struct Member {
    size_t cls = 0;
    int number = 0;
  };

  void Round(size_t cls);
  AutoscalerRule::Seen Observe(const Class& of) const;
  void Start(size_t cls, int number);
  // The worker is there, and may be taken away some time.
  void Arrive(const std::string& worker);
  void Leave(const std::string& worker);
  void Preempt(const std::string& worker);
  const Member* MemberOf(const std::string& worker) const;

  const Scenario& scenario_;
  Agenda& agenda_;
  Machines& machines_;
  Workers& workers_;
  WorldResult& result_;
  const Hooks hooks_;
  std::vector<Class> classes_;
  std::map<std::string, Member> members_;    // workers of classes
  std::map<std::string, int64_t> arrivals_;  // how often each worker has come
  uint64_t draws_ = 0;
};

}  // namespace heddle::sim
