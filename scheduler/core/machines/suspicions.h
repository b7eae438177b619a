// Trials that were in progress when a worker fell silent until its lease had ended.
//
// Such a trial may have ended the worker, or its whole machine. Or the worker was stopped, or cut off, and the trial
// did nothing. The scheduler cannot tell at that time, so it charges the trial an attempt and remembers the process
// that was silent. If that process is seen again, it lives, and the trial gets the attempt back. A machine that crashed
// comes back with another process, or not at all: the trial stays charged and is given up like after any other fault.
#pragma once

#include <algorithm>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "scheduler/core/ids.h"
#include "scheduler/core/job_state.h"

namespace heddle::scheduler {

class Suspicions {
 public:
  struct Suspect {
    JobId job;
    TaskIndex task;
    CandidateId candidate;
    std::string worker, boot;  // the process that fell silent
  };
  // `slots`: the list as it is now, sorted by id; it outlives this.
  explicit Suspicions(const std::vector<SlotInfo>* slots) : slots_(slots) {}

  const std::vector<SlotInfo>& slots() const { return *slots_; }
  // The process is not in the list now.
  void Add(Suspect suspect) {
    suspects_.push_back(std::move(suspect));
    if (suspects_.size() > kMost) suspects_.pop_front();
  }
  // Takes those whose process is in the list again. Those whose worker is there as another process are forgotten.
  std::vector<Suspect> TakeCleared() {
    std::vector<Suspect> cleared;
    std::erase_if(suspects_, [&](const Suspect& suspect) {
      const SlotInfo* slot = SlotOf(*slots_, suspect.worker);
      if (slot == nullptr) return false;
      if (slot->boot == suspect.boot) cleared.push_back(suspect);
      return true;
    });
    return cleared;
  }
  // Whether the list has the worker as this process.
  static bool Sees(const std::vector<SlotInfo>& slots, const std::string& worker,
                   const std::string& boot) {
    const SlotInfo* slot = SlotOf(slots, worker);
    return slot != nullptr && slot->boot == boot;
  }

 private:
  // Of workers that never come back; the oldest are forgotten and stay charged.
  static constexpr size_t kMost = 1024;

  // Any slot of the worker; null: it has none.
  static const SlotInfo* SlotOf(const std::vector<SlotInfo>& slots, const std::string& worker) {
    const auto found = std::lower_bound(
        slots.begin(), slots.end(), worker,
        [](const SlotInfo& slot, const std::string& name) { return slot.id.worker < name; });
    return found == slots.end() || found->id.worker != worker ? nullptr : &*found;
  }

  const std::vector<SlotInfo>* const slots_;
  std::deque<Suspect> suspects_;
};

}  // namespace heddle::scheduler
