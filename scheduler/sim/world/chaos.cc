#include "scheduler/sim/world/chaos.h"

#include <utility>
#include <vector>

namespace heddle::sim {
namespace {

constexpr int kLiesUntilQuarantine = 5;  // measurements

}  // namespace

Chaos::Chaos(const Scenario& scenario, Agenda* agenda, Dice* dice, Machines* machines,
             Workers* workers, Hooks hooks)
    : scenario_(scenario),
      agenda_(*agenda),
      dice_(*dice),
      machines_(*machines),
      workers_(*workers),
      hooks_(std::move(hooks)),
      draws_(Mix({scenario.seed, 2})) {}

void Chaos::Begin() {
  if (scenario_.faults.until > 0) agenda_.At(Draw(1, 60), [this] { Strike(); });
}

const SlotId& Chaos::AnySlot() {
  const int slot = draws_.Below(static_cast<int>(scenario_.slots.size()));
  return scenario_.slots[static_cast<size_t>(slot)].info.id;
}

// By weight. Empty if every weight is 0.
std::string Chaos::AnyKind() {
  int total = 0;
  for (const auto& [kind, weight] : scenario_.faults.chaos) total += weight;
  int pick = total > 0 ? draws_.Below(total) : 0;
  std::string kind;
  for (const auto& [name, weight] : scenario_.faults.chaos) {
    kind = name;
    if ((pick -= weight) < 0) break;
  }
  return kind;
}

void Chaos::Strike() {
  if (agenda_.now() - agenda_.start() > absl::Seconds(scenario_.faults.until)) return Heal();
  draws_ = Dice(Mix({scenario_.seed, 2, ++blows_}));
  const absl::Duration next = Draw(scenario_.faults.every[0], scenario_.faults.every[1]);
  const std::string kind = AnyKind();
  const JobId job{draws_.Below(static_cast<int>(scenario_.jobs.size())) + 1};
  if (kind == "kill_worker") {
    SilenceWorker(AnySlot().worker, Workers::Ending::kCrashed);
  } else if (kind == "stop_worker") {
    SilenceWorker(AnySlot().worker, Workers::Ending::kSilent);
  } else if (kind == "restart") {
    if (hooks_.restart) hooks_.restart();
  } else if (kind == "fail_over") {
    const absl::Duration gap = Draw(scenario_.faults.take_over[0], scenario_.faults.take_over[1]);
    if (hooks_.fail_over) hooks_.fail_over(gap, gap * draws_.Between(0, 4));
  } else if (kind == "lose_lease") {
    LoseLease(false);
  } else if (kind == "old_lease") {
    LoseLease(true);
  } else if (kind == "foreign_lease") {
    TakeForeign();
  } else if (kind == "tracker_down") {
    TakeTrackerDown();
  } else if (kind == "lie") {
    Lie();
  } else if (kind == "pause") {
    Pause(job);
  } else if (kind == "cancel") {
    hooks_.tell(job, CancelRequested{job, "changed my mind"});
  } else if (kind == "fetch") {
    Fetch(job);
  } else if (kind == "disk_full") {
    FillDisk(job);
  }
  agenda_.At(next, [this] { Strike(); });
}

void Chaos::Heal() {
  machines_.Heal();
  hooks_.report_slots();
  hooks_.tell_all(StoreBlocked{""});
  for (size_t i = 0; i < scenario_.jobs.size(); ++i) {
    const JobId job{static_cast<int64_t>(i) + 1};
    hooks_.tell(job, ResumeRequested{job});
  }
}

// The streams of its stages break at once; the tracker notices later. What crashed comes back as another process, and
// what was stopped as the same.
void Chaos::SilenceWorker(const std::string& worker, Workers::Ending ending) {
  if (machines_.dead.count(worker)) return;
  if (ending == Workers::Ending::kCrashed) {
    machines_.Kill(worker);
  } else {
    machines_.dead.insert(worker);
  }
  std::vector<AttemptId> victims;
  for (const auto& [id, stage] : workers_.running()) {
    if (stage.start.slot.worker == worker) victims.push_back(id);
  }
  for (AttemptId id : victims) workers_.Break(id, "the stream broke", ending);
  agenda_.At(Draw(0, 10), [this] { hooks_.report_slots(); });
  agenda_.At(Draw(1, 120), [this, worker] {
    machines_.dead.erase(worker);
    hooks_.report_slots();
  });
}

// The lease of a stage runs out. Its worker may go on all the same and answer later.
void Chaos::LoseLease(bool worker_goes_on) {
  const RunningStages& running = workers_.running();
  if (running.empty()) return;
  const AttemptId id =
      std::next(running.begin(), draws_.Below(static_cast<int>(running.size())))->first;
  if (worker_goes_on) workers_.LeaveGhost(id);
  const bool told = draws_.Likely(0.5);
  workers_.Break(id, "the lease was lost",
                 told ? Workers::Ending::kInterrupted : Workers::Ending::kSilent);
}

// Another user takes a slot. The dispatcher is told at once, or finds out by a refused lease.
void Chaos::TakeForeign() {
  const SlotId slot = AnySlot();
  if (workers_.Holds(slot)) return;
  machines_.foreign.insert(slot);
  agenda_.At(Draw(1, 60), [this, slot] {
    machines_.foreign.erase(slot);
    hooks_.report_slots();
  });
  if (draws_.Likely(0.5)) hooks_.report_slots();
}

void Chaos::TakeTrackerDown() {
  machines_.tracker_down = true;
  hooks_.report_slots();
  agenda_.At(Draw(1, 30), [this] {
    machines_.tracker_down = false;
    hooks_.report_slots();
  });
}

// From now on a device measures far too little time.
void Chaos::Lie() {
  std::vector<SlotId> devices;
  for (const SimSlot& slot : scenario_.slots) {
    if (slot.info.device) devices.push_back(slot.info.id);
  }
  if (devices.empty()) return;
  machines_.lying.insert(
      devices[static_cast<size_t>(draws_.Below(static_cast<int>(devices.size())))]);
}

void Chaos::Lied(const SlotId& slot) {
  if (++machines_.lies[slot] < kLiesUntilQuarantine) return;
  machines_.lies.erase(slot);
  agenda_.At(absl::ZeroDuration(), [this, slot] {
    if (!machines_.lying.erase(slot)) return;
    machines_.quarantined.insert(slot);
    hooks_.report_slots();
    agenda_.At(absl::Seconds(dice_.Between(30, 120)), [this, slot] {  // its canary passes again
      machines_.quarantined.erase(slot);
      hooks_.report_slots();
    });
  });
}

void Chaos::Pause(JobId job) {
  hooks_.tell(job, PauseRequested{job, "lunch"});
  agenda_.At(Draw(1, 60), [this, job] { hooks_.tell(job, ResumeRequested{job}); });
}

// Somebody asks for the job's module, and may leave before it is made.
void Chaos::Fetch(JobId job) {
  if (hooks_.was_submitted(job)) hooks_.tell(job, FetchRequested{FetchId{++last_fetch_}, job});
  if (!draws_.Likely(0.5)) return;
  agenda_.At(Draw(0, 20), [this, job, fetch = FetchId{last_fetch_}] {
    hooks_.tell(job, FetchAbandoned{fetch});
  });
}

void Chaos::FillDisk(JobId job) {
  hooks_.tell(job, StoreBlocked{"the disk is full"});
  agenda_.At(Draw(1, 20), [this, job] { hooks_.tell(job, StoreBlocked{""}); });
}

}  // namespace heddle::sim
