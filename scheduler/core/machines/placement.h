// Which work goes to which slot: knows the slots, which of them are held or better left alone, and
// the ready work in the policy's order.
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
    const SlotInfo* slot;  // of slots()
  };

  // False: it is the same list as before.
  bool TakeSlots(const SlotsChanged& event, absl::Time now);
  // Whoever is first by the policy gets the smallest free slot that suits. Work whose turn it is,
  // and whose slot nobody holds but for some of its cores, keeps the free cores of that slot from
  // being taken again; otherwise a slot of several cores would wait for ever while smaller ones come
  // and go. nullopt: nothing can start.
  std::optional<Assignment> Next(const Policy& policy) const;
  // A stage of the job begins on the slot, or ends.
  void StageStarted(const Assignment& assignment, const Job& job);
  void StageEnded(const LiveStage& stage, const StageFinished& event,
                  const DispatcherOptions& options, absl::Time now);

  // Candidates that one build stage of the task takes, and one profile stage. Those that are ready
  // are shared out among the slots that are free right now. Where nothing else of the lane waits to
  // be built, slots that come free will build for this task as well: then each stage takes its part
  // of a round among all slots, so that no slow host keeps the round waiting.
  size_t BuildShare(const Task& task, int lane) const;
  size_t ProfileShare(const Task& task, int lane) const;

  const std::vector<SlotInfo>& slots() const { return slots_; }
  const std::string& tracker_problem() const { return tracker_problem_; }
  bool IsFree(const SlotInfo& slot) const {
    return tracker_problem_.empty() && slot_index_.IsFree(slot);
  }
  // Why the latest stage sent to the slot did not run there; empty: it did.
  std::string Refusal(const SlotId& slot) const;
  // Until when the slot is left alone after refusals.
  absl::Time BacksOffUntil(const SlotId& slot) const;

  SlotIndex& slot_index() { return slot_index_; }
  const SlotIndex& slot_index() const { return slot_index_; }
  ReadyIndex& ready() { return ready_; }
  const ReadyIndex& ready() const { return ready_; }

 private:
  struct Trouble {
    int refusals = 0;  // in a row
    absl::Time not_before;
    std::string why;  // what the latest stage sent there was told; empty: it ran
  };
  size_t FreeShare(int candidates, int lane) const;

  std::vector<SlotInfo> slots_;  // by id
  std::string tracker_problem_ = "no answer from the tracker yet";
  std::map<SlotId, Trouble> trouble_;
  SlotIndex slot_index_;
  ReadyIndex ready_;
};

}  // namespace heddle::scheduler
