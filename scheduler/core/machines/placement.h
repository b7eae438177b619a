// Assigns work to slots. It knows the slots, which of them are held or back off, and the ready work
// in the policy's order.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "scheduler/core/events.h"
#include "scheduler/core/job_state.h"
#include "scheduler/core/machines/retry.h"
#include "scheduler/core/policy.h"
#include "scheduler/core/ready_index.h"
#include "scheduler/core/slot_index.h"

namespace heddle::scheduler {

class Placement {
 public:
  struct Assignment {
    WorkItem work;
    const SlotInfo* slot;  // an element of slots()
    absl::Time ready_since;
  };

  // Returns false if the list is the same as before.
  bool TakeSlots(const SlotsChanged& event, absl::Time now);
  // The next assignment: the first work in the policy's order gets the smallest free slot that
  // suits. If a slot that suits is not held but some of its cores are in use, its free cores are
  // reserved for this work. Otherwise a slot of several cores could wait for ever while smaller
  // ones come and go. nullopt: nothing can start.
  std::optional<Assignment> Next(const Policy& policy, const Jobs& jobs) const;
  // The worker that must not run this work of the job: it told a user fault of the same stage, and
  // another worker has a usable slot for confirming that. Null: any worker will do.
  const std::string* Avoided(const Job& job, const StageWork& work) const;
  // A stage of the job begins or ends on the slot.
  void StageStarted(const Assignment& assignment, const Job& job);
  void StageEnded(const LiveStage& stage, const StageFinished& event,
                  const DispatcherOptions& options, absl::Time now);

  // How many candidates one build or profile stage of the task takes. In general, the ready
  // candidates are divided among the free slots. If no other work waits in the build lane, slots
  // that become free will also build for this task. Then each build stage takes its part of a round
  // divided among all usable slots, so that no slow host delays the round.
  size_t BuildShare(const Task& task, int lane) const;
  size_t ProfileShare(const Task& task, int lane) const;

  const std::vector<SlotInfo>& slots() const { return slots_; }
  const std::string& tracker_problem() const { return tracker_problem_; }
  bool IsFree(const SlotInfo& slot) const {
    return tracker_problem_.empty() && slot_index_.IsFree(slot);
  }
  // Why the latest stage sent to the slot did not run there; empty if it did.
  std::string Refusal(const SlotId& slot) const;
  // Until when the slot is not used after refusals.
  absl::Time BacksOffUntil(const SlotId& slot) const;

  SlotIndex& slot_index() { return slot_index_; }
  const SlotIndex& slot_index() const { return slot_index_; }
  ReadyIndex& ready() { return ready_; }
  const ReadyIndex& ready() const { return ready_; }

 private:
  struct Trouble {
    int refusals = 0;  // in a row
    absl::Time not_before;
    std::string why;  // why the latest stage sent there did not run; empty: it did
  };
  size_t FreeShare(int candidates, int lane) const;

  std::vector<SlotInfo> slots_;  // by id
  std::string tracker_problem_ = "no answer from the tracker yet";
  std::map<SlotId, Trouble> trouble_;
  SlotIndex slot_index_;
  ReadyIndex ready_;
};

}  // namespace heddle::scheduler
