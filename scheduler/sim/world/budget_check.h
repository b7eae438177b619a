// Whether trials are counted as promised, whatever goes wrong: budgets of uniform and gradient
// jobs, tasks that jobs share, stops, devices held. Looks at a dispatcher before and after each
// step and counts for itself.
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
  // What the job's tasks truly are, whatever the dispatcher was told.
  void Imported(scheduler::JobId job, std::vector<std::string> keys) {
    keys_[job] = std::move(keys);
  }
  void Before(const scheduler::Dispatcher& dispatcher);
  // Empty, or what was violated.
  std::string After(const scheduler::Dispatcher& dispatcher,
                    const std::vector<scheduler::Change>& changes, const scheduler::Event& event);
  // Of a job that is done.
  std::string End(const scheduler::Job& job) const;

 private:
  using Key = std::pair<scheduler::JobId, scheduler::TaskIndex>;
  struct Seen {
    std::string what, device_key;  // workload and target, empty: shared with nobody
    int known = 0, trials = 0, budget = 0;
    bool granted = false;    // by the gradient, and not proposed yet
    bool measuring = false;  // a round is in flight, in a job that runs
  };
  static bool Shares(const Seen& a, const Seen& b);
  std::map<Key, Seen> before_;
  std::map<scheduler::JobId, std::vector<std::string>> keys_;
  std::map<scheduler::JobId, int> granted_;  // of gradient jobs
  std::set<scheduler::JobId> stopped_, paused_;
  // Tasks seen on a plateau: a partner's later record may lift them off it again.
  std::set<Key> plateaued_;
};

}  // namespace heddle::sim
