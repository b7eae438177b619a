#include "scheduler/sim/world/machines.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace heddle::sim {

using namespace heddle::scheduler;  // NOLINT: the simulator is the scheduler's own

Machines::Machines(const Scenario& scenario) : scenario_(scenario) {
  const size_t slots = scenario.slots.size();
  neighbours_.resize(slots);
  std::map<std::pair<std::string, int>, std::vector<int>> holders;
  for (size_t i = 0; i < slots; ++i) {
    const SlotInfo& slot = scenario.slots[i].info;
    index_[slot.id] = static_cast<int>(i);
    for (int core : slot.cores) holders[{slot.host, core}].push_back(static_cast<int>(i));
  }
  for (size_t i = 0; i < slots; ++i) {
    std::set<int> near{static_cast<int>(i)};
    const SlotInfo& slot = scenario.slots[i].info;
    for (int core : slot.cores) {
      const std::vector<int>& others = holders[{slot.host, core}];
      near.insert(others.begin(), others.end());
    }
    neighbours_[i].assign(near.begin(), near.end());
  }
}

SlotsChanged Machines::Report(const std::vector<int>& slots) const {
  SlotsChanged event;
  if (tracker_down) event.problem = "the tracker is gone";
  for (const int index : slots) {
    const SlotInfo& made = info(index);
    if (dead.count(made.id.worker) || absent.count(made.id.worker)) continue;
    SlotInfo slot = made;
    if (const auto boot = boots_.find(slot.id.worker); boot != boots_.end())
      slot.boot = absl::StrCat(boot->second);
    if (draining.count(slot.id.worker)) slot.usable = false, slot.why_not = "draining";
    if (foreign.count(slot.id))
      slot.foreign = true, slot.usable = false, slot.why_not = "held by ann";
    if (quarantined.count(slot.id)) slot.usable = false, slot.why_not = "quarantined";
    event.slots.push_back(std::move(slot));
  }
  return event;
}

bool Machines::Refuses(const SlotId& slot) const {
  return foreign.count(slot) > 0 || tracker_down || dead.count(slot.worker) > 0 ||
         absent.count(slot.worker) > 0 || draining.count(slot.worker) > 0;
}

bool Machines::Share(const SlotInfo& a, const SlotInfo& b) {
  if (a.id == b.id) return true;  // a GPU's slot has no cores
  return a.host == b.host && std::any_of(a.cores.begin(), a.cores.end(), [&](int core) {
           return std::find(b.cores.begin(), b.cores.end(), core) != b.cores.end();
         });
}

void Machines::Heal() {
  dead.clear();
  foreign.clear();
  lying.clear();
  quarantined.clear();
  tracker_down = false;
}

}  // namespace heddle::sim
