// What goes wrong in the world, and when.
//
// Chaos strikes at random moments until `faults.until`; then the world heals. Each blow draws from a
// stream of its own. So moments, kinds, machines and durations are the same under every policy.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/time/time.h"
#include "scheduler/core/events.h"
#include "scheduler/sim/chance.h"
#include "scheduler/sim/scenario.h"
#include "scheduler/sim/world/agenda.h"
#include "scheduler/sim/world/machines.h"
#include "scheduler/sim/world/workers.h"

namespace heddle::sim {

class Chaos {
 public:
  struct Hooks {
    // An event for the scheduler's process that has the job, or for every process.
    std::function<void(JobId job, Event event)> tell;
    std::function<void(Event event)> tell_all;
    std::function<bool(JobId job)> was_submitted;
    // The tracker reports the slots as they are now.
    std::function<void()> report_slots;
    // The scheduler's process dies and another one begins; null: it cannot in this world.
    std::function<void()> restart;
    // It is stopped for that long, and another takes over after `gap`; null likewise.
    std::function<void(absl::Duration gap, absl::Duration stopped)> fail_over;
  };
  // All outlive this. `dice` is the stream that all the world shares.
  Chaos(const Scenario& scenario, Agenda* agenda, Dice* dice, Machines* machines, Workers* workers,
        Hooks hooks);

  // Plans the first blow, if there is to be any.
  void Begin();
  // A lying device measured once more. After a few of these the tracker quarantines it for a while.
  void Lied(const SlotId& slot);

 private:
  absl::Duration Draw(double low, double high) { return absl::Seconds(draws_.Between(low, high)); }
  const SlotId& AnySlot();
  std::string AnyKind();
  void Strike();
  void Heal();
  void SilenceWorker(const std::string& worker, Workers::Ending ending);
  void LoseLease(bool worker_goes_on);
  void TakeForeign();
  void TakeTrackerDown();
  void Lie();
  void Pause(JobId job);
  void Fetch(JobId job);
  void FillDisk(JobId job);

  const Scenario& scenario_;
  Agenda& agenda_;
  Dice& dice_;
  Machines& machines_;
  Workers& workers_;
  const Hooks hooks_;
  Dice draws_;  // of the present blow
  uint64_t blows_ = 0;
  int64_t last_fetch_ = 0;
};

}  // namespace heddle::sim
