// The simulated hosts and slots, and what is wrong with them now.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "scheduler/core/events.h"
#include "scheduler/sim/scenario.h"

namespace heddle::sim {

class Machines {
 public:
  explicit Machines(const Scenario& scenario);

  // What the tracker reports.
  scheduler::SlotsChanged Report() const;
  // Whether no stage can begin there: the tracker, the worker or another user's lease prevents it.
  bool Refuses(const scheduler::SlotId& slot) const;
  int IndexOf(const scheduler::SlotId& slot) const { return index_.at(slot); }
  const scheduler::SlotInfo& info(int slot) const {
    return scenario_.slots[static_cast<size_t>(slot)].info;
  }
  // Slots that share a core with this one, itself too; sorted.
  const std::vector<int>& NeighboursOf(int slot) const {
    return neighbours_[static_cast<size_t>(slot)];
  }
  // Whether the two slots are one or have a core in common.
  static bool Share(const scheduler::SlotInfo& a, const scheduler::SlotInfo& b);
  // Nothing is wrong any more.
  void Heal();

  std::set<std::string> dead;                               // workers
  std::set<scheduler::SlotId> foreign, quarantined, lying;  // lying: measures too little time
  std::map<scheduler::SlotId, int> lies;                    // measurements of these so far
  bool tracker_down = false;

 private:
  const Scenario& scenario_;
  std::map<scheduler::SlotId, int> index_;
  std::vector<std::vector<int>> neighbours_;
};

}  // namespace heddle::sim
