#include "proto/people_slots.h"

namespace heddle {

std::vector<std::string> SlotsToDrain(const v1::WorkerStatus& worker, const std::string& slot) {
  std::vector<std::string> names;
  for (const v1::SlotStatus& one : worker.slots()) {
    if (!slot.empty() && one.slot().name() != slot) continue;
    if (one.holder().starts_with(kPersonHolder)) continue;
    // A slot whose cores a person's lease blocks runs nothing, but a stage may block it as well.
    const bool by_person =
        one.state() == v1::SLOT_BLOCKED && one.reason().find(kPersonHolder) != std::string::npos;
    if (by_person || one.state() == v1::SLOT_QUARANTINED || one.state() == v1::SLOT_DRAINING)
      continue;
    names.push_back(one.slot().name());
  }
  return names;
}

std::vector<v1::SlotStatus> SlotsOfPeople(const v1::WorkerStatus& worker, const std::string& slot) {
  std::vector<v1::SlotStatus> held;
  for (const v1::SlotStatus& one : worker.slots()) {
    if (!slot.empty() && one.slot().name() != slot) continue;
    if (one.holder().starts_with(kPersonHolder)) held.push_back(one);
  }
  return held;
}

}  // namespace heddle
