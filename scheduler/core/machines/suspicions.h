// What the end of an attempt costs the trials of its stage, if it is no success and nobody cancelled it.
//
//   the worker                      in progress               the others
//   --------------------------------------------------------------------------------------------------------
//   refused it, or was not reached  -                         nothing
//   told that it was interrupted    nothing                   nothing
//   told of a fault, or hung        an attempt                nothing; an attempt if none was in progress
//   fell silent                     an attempt on suspicion   nothing
//
// A worker fell silent if the lease was lost or the connection broke, and it had not told how the stage ended. What
// was in progress may have ended the worker, or its whole machine. Or the worker, this scheduler or the network
// between them was stopped, and the trial did nothing. That cannot be told at once, so the trial is charged, and
// gets the attempt back when the process is known to live: it is seen again after it was gone from the
// tracker's list, or is still listed when a dead one would be gone. A machine that crashed comes back with
// another process, or not at all: then the trial stays charged, and is given up like after any other fault.
//
// Whatever was in progress at an interruption or a silence also counts it, without an attempt, and is given up at
// max_interruptions of them. If the worker fell silent and is gone, with no trial in progress, all trials of the stage count it: one of them
// may have ended the machine before the worker could say that it began.
//
// A stage without trials pays for a silence like for a fault (retry.h): three in a row, and an update, a plan stage or a
// comparison is skipped.
//
// Charges are stored and suspicions are not: after a restart of the scheduler, or a take-over, what is charged stays charged.
#pragma once

#include <algorithm>
#include <cstddef>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
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
  void Add(Suspect suspect, absl::Time now) {
    const bool listed = Sees(*slots_, suspect.worker, suspect.boot);
    const absl::Time lives_at = listed ? now + kNoticed : absl::InfinitePast();
    if (listed) next_ = std::min(next_, lives_at);
    suspects_.push_back({std::move(suspect), lives_at});
    // At most one is in progress on each slot.
    most_ = std::max(most_, 2 * slots_->size());
    if (suspects_.size() > most_) suspects_.pop_front();
  }
  // Takes those whose process is known to live. Those whose worker is there as another process are forgotten. Call it when the
  // list has changed, and from next() on.
  std::vector<Suspect> TakeCleared(absl::Time now) {
    std::vector<Suspect> cleared;
    std::deque<Waiting> left;
    next_ = absl::InfiniteFuture();
    for (Waiting& waiting : suspects_) {
      const SlotInfo* slot = SlotOf(*slots_, waiting.suspect.worker);
      if (slot == nullptr) {
        waiting.lives_at = absl::InfinitePast();  // as soon as it is listed again
      } else if (slot->boot != waiting.suspect.boot) {
        continue;
      } else if (now >= waiting.lives_at) {
        cleared.push_back(std::move(waiting.suspect));
        continue;
      } else {
        next_ = std::min(next_, waiting.lives_at);
      }
      left.push_back(std::move(waiting));
    }
    suspects_ = std::move(left);
    return cleared;
  }
  // When TakeCleared may find some though the list does not change.
  absl::Time next() const { return next_; }
  // Whether the list has the worker as this process.
  static bool Sees(const std::vector<SlotInfo>& slots, const std::string& worker,
                   const std::string& boot) {
    const SlotInfo* slot = SlotOf(slots, worker);
    return slot != nullptr && slot->boot == boot;
  }

 private:
  // Longer than a tracker lists a process that has ended.
  static constexpr absl::Duration kNoticed = absl::Seconds(35);

  struct Waiting {
    Suspect suspect;
    absl::Time lives_at;  // the process lives if it is listed then, or later
  };

  // Any slot of the worker; null: it has none.
  static const SlotInfo* SlotOf(const std::vector<SlotInfo>& slots, const std::string& worker) {
    const auto found = std::lower_bound(
        slots.begin(), slots.end(), worker,
        [](const SlotInfo& slot, const std::string& name) { return slot.id.worker < name; });
    return found == slots.end() || found->id.worker != worker ? nullptr : &*found;
  }

  const std::vector<SlotInfo>* const slots_;
  std::deque<Waiting> suspects_;
  absl::Time next_ = absl::InfiniteFuture();
  // Twice the most slots that there ever were, so that all workers may fall silent at once. Of workers that never
  // come back, the oldest are forgotten and stay charged.
  size_t most_ = 64;
};

}  // namespace heddle::scheduler
