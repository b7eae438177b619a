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
    whats_.erase(job);
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
    // Numbers of texts (NumberOf), since there is one of these for each task and step.
    int what = 0;    // workload and target; 0: no other job shares the task
    int device = 0;  // the job's device key; 0: it has none
    int known = 0, trials = 0, budget = 0;
    int unproposed = 0;      // granted trials that are not proposed yet
    bool granted = false;    // has trials that the gradient granted and that are not proposed yet
    bool measuring = false;  // proposes, or a round is in flight
  };
  using SeenTasks = std::vector<std::pair<Key, Seen>>;  // in order
  static bool Shares(const Seen& a, const Seen& b);
  // The same number for the same text, and 0 for none.
  int NumberOf(const std::string& text);
  // Of the job's tasks, as in Seen::what.
  const std::vector<int>& WhatsOf(const scheduler::Job& job);
  SeenTasks::const_iterator Find(const Key& task) const;
  SeenTasks before_;
  std::map<std::string, int> numbers_;
  std::map<scheduler::JobId, std::vector<int>> whats_;
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
