// Whether trials are counted as promised, whatever goes wrong: budgets of uniform and of gradient
// jobs, tasks that jobs share, stops, and the number of devices that a job holds. This looks at a
// dispatcher before and after each step and counts for itself.
#pragma once

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "scheduler/core/dispatcher.h"

namespace heddle::sim {

class BudgetCheck {
 public:
  // The keys of the tasks that an import found, even if the dispatcher was told something else.
  void Imported(scheduler::JobId job, std::vector<std::string> keys) {
    keys_[job] = std::move(keys);
  }
  void Before(const scheduler::Dispatcher& dispatcher);
  // Both return the violation, or nothing.
  std::string After(const scheduler::Dispatcher& dispatcher,
                    const std::vector<scheduler::Change>& changes, const scheduler::Event& event);
  // For a job that is done.
  std::string End(const scheduler::Job& job) const;

 private:
  // Whether tuning that has ended has used what it was granted.
  std::string EndOfTuning(const scheduler::Job& job) const;
  using Key = std::pair<scheduler::JobId, scheduler::TaskIndex>;
  struct Seen {
    std::string what;  // workload and target; empty: no other job shares the task
    std::string device_key;
    int known = 0, trials = 0, budget = 0;
    int unproposed = 0;      // granted trials that are not proposed yet
    bool granted = false;    // has trials that the gradient granted and that are not proposed yet
    bool measuring = false;  // proposes, or a round is in flight
  };
  static bool Shares(const Seen& a, const Seen& b);
  std::map<Key, Seen> before_;
  std::map<scheduler::JobId, std::vector<std::string>> keys_;
  std::map<scheduler::JobId, int> granted_;  // trials, of gradient jobs
  std::set<scheduler::JobId> stopped_, paused_;
  // Jobs of which plans contend and have used their half of the pool.
  std::set<scheduler::JobId> contended_;
  std::set<Key> beaten_;  // tasks that only plans have that can no longer win a contest
  // What EndOfTuning said of jobs that chose their plan once more afterwards: that changes the weights.
  std::map<scheduler::JobId, std::string> tuned_;
  // Tasks that were on a plateau once. A later record of a partner may end the plateau.
  std::set<Key> plateaued_;
};

}  // namespace heddle::sim
