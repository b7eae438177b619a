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

  // The event that the tracker sends about these slots, given by their indices, in order. It has no slots of dead and
  // absent workers.
  scheduler::SlotsChanged Report(const std::vector<int>& slots) const;
  // Whether no stage can begin on the slot: the tracker is down, another user holds the slot, or its worker is dead, absent
  // or about to leave.
  bool Refuses(const scheduler::SlotId& slot) const;
  int IndexOf(const scheduler::SlotId& slot) const { return index_.at(slot); }
  const scheduler::SlotInfo& info(int slot) const {
    return scenario_.slots[static_cast<size_t>(slot)].info;
  }
  // Indices of the slots that share a core with this one, itself included, in order.
  const std::vector<int>& NeighboursOf(int slot) const {
    return neighbours_[static_cast<size_t>(slot)];
  }
  // Whether the two are the same slot or have a core in common.
  static bool Share(const scheduler::SlotInfo& a, const scheduler::SlotInfo& b);
  // The worker's process dies. It is not listed, and when it is back it is another process.
  void Kill(const std::string& worker) {
    dead.insert(worker);
    ++boots_[worker];
  }
  // Ends all faults of machines and of the tracker. Workers that are absent stay absent, and those that drain go on draining.
  void Heal();

  std::set<std::string> dead;               // workers whose processes have died, or were stopped
  std::set<std::string> absent;             // workers that are not there (supply.h)
  std::set<std::string> draining;           // workers that will leave
  std::set<scheduler::SlotId> foreign;      // held by another user
  std::set<scheduler::SlotId> quarantined;  // by the tracker
  std::set<scheduler::SlotId> lying;        // devices that measure far too little time
  std::map<scheduler::SlotId, int> lies;    // measurements of lying devices so far
  bool tracker_down = false;

 private:
  const Scenario& scenario_;
  std::map<scheduler::SlotId, int> index_;
  std::map<std::string, int> boots_;  // deaths of each worker
  std::vector<std::vector<int>> neighbours_;
};

}  // namespace heddle::sim
