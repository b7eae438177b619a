// What goes wrong, and the bugs that are planted to see that the checks see them.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "scheduler/sim/world/world.h"

namespace heddle::sim {

void World::Chaos() {
  if (now() - agenda_.start() > absl::Seconds(scenario_.faults.until)) return Heal();
  fate_ = Dice(Mix({scenario_.seed, 2, ++blows_}));
  const absl::Duration next = Fate(scenario_.faults.every[0], scenario_.faults.every[1]);
  int total = 0;
  for (const auto& [kind, weight] : scenario_.faults.chaos) total += weight;
  int pick = total > 0 ? fate_.Below(total) : 0;
  std::string kind;
  for (const auto& [name, weight] : scenario_.faults.chaos) {
    kind = name;
    if ((pick -= weight) < 0) break;
  }
  const int index = fate_.Below(static_cast<int>(scenario_.jobs.size()));
  const JobId job{index + 1};
  const int process = ProcessOf(index);
  if (kind == "kill_worker") {
    const int slot = fate_.Below(static_cast<int>(scenario_.slots.size()));
    KillWorker(scenario_.slots[static_cast<size_t>(slot)].info.id.worker);
  } else if (kind == "restart") {
    if (options_.durable) Restart();
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
    Feed(process, PauseRequested{job, "lunch"});
    agenda_.At(Fate(1, 60), [this, process, job] { Feed(process, ResumeRequested{job}); });
  } else if (kind == "cancel") {
    Feed(process, CancelRequested{job, "changed my mind"});
  } else if (kind == "fetch") {
    if (processes_[static_cast<size_t>(process)].dispatcher->FindJob(job) != nullptr)
      Feed(process, FetchRequested{FetchId{++last_fetch_}, job});
    if (fate_.Likely(0.5)) {
      agenda_.At(Fate(0, 20),
                 [this, process, f = last_fetch_] { Feed(process, FetchAbandoned{FetchId{f}}); });
    }
  } else if (kind == "disk_full") {
    Feed(process, StoreBlocked{"the disk is full"});
    agenda_.At(Fate(1, 20), [this, process] { Feed(process, StoreBlocked{""}); });
  }
  agenda_.At(next, [this] { Chaos(); });
}

void World::Heal() {
  machines_.Heal();
  SendSlots();
  for (size_t i = 0; i < processes_.size(); ++i) Feed(static_cast<int>(i), StoreBlocked{""});
  for (size_t i = 0; i < scenario_.jobs.size(); ++i)
    Feed(ProcessOf(static_cast<int>(i)), ResumeRequested{JobId{static_cast<int64_t>(i) + 1}});
}

void World::KillWorker(const std::string& worker) {
  if (!machines_.dead.insert(worker).second) return;
  std::vector<AttemptId> victims;
  for (auto& [id, stage] : stages_) {
    if (stage.start.slot.worker == worker) victims.push_back(id);
  }
  // The streams break at once; the tracker notices later.
  for (AttemptId id : victims) Finish(id, {v1::FAULT_INFRASTRUCTURE, "the stream broke"});
  agenda_.At(Fate(0, 10), [this] { SendSlots(); });
  agenda_.At(Fate(1, 120), [this, worker] {
    machines_.dead.erase(worker);
    SendSlots();
  });
}

// The lease runs out under a stage; its worker may go on all the same and answer later.
void World::LoseLease(bool comes_back) {
  if (stages_.empty()) return;
  auto it = std::next(stages_.begin(), fate_.Below(static_cast<int>(stages_.size())));
  const AttemptId id = it->first;
  if (comes_back) LeaveGhost(id);
  Finish(id, {v1::FAULT_INFRASTRUCTURE, "the lease was lost"}, {}, fate_.Likely(0.5));
}

// The worker of this stage goes on under its old lease, and answers for each of its candidates.
// Attempt and fencing token are the old ones: nothing may come of it.
void World::LeaveGhost(AttemptId id) {
  const RunningStage& stage = stages_.at(id);
  if (!stage.taken ||
      (stage.start.kind != v1::STAGE_BUILD && stage.start.kind != v1::STAGE_PROFILE))
    return;
  std::vector<CandidateId> candidates = stage.working;
  candidates.insert(candidates.end(), stage.inputs.begin(), stage.inputs.end());
  double after = 0;
  for (CandidateId candidate : candidates) {
    after += dice_.Between(0, 6);
    agenda_.At(absl::Seconds(after), [this, id, candidate, start = stage.start, token = stage.token,
                                      process = stage.process] {
      AttemptId attempt = id;
      if (plant_.Is(Planted::kSkipFencing)) {
        for (const auto& [live_id, live] : stages_) {
          const auto known =
              processes_[static_cast<size_t>(process)].dispatcher->live().find(live_id);
          if (live.start.job == start.job && live.start.kind == start.kind &&
              known != processes_[static_cast<size_t>(process)].dispatcher->live().end() &&
              known->second.candidates.count(candidate)) {
            attempt = live_id;
          }
        }
      }
      ++result_.stale_answers;
      if (start.kind == v1::STAGE_BUILD) {
        return Feed(process, CandidateBuilt{attempt, candidate, v1::OUTCOME_OK, "",
                                            std::make_shared<v1::Artifact>()});
      }
      CandidateProfiled profiled{attempt, candidate, v1::OUTCOME_OK, "", 1};
      auto measured = std::make_shared<Measured>();
      measured->fencing_token = token;
      measured->measurement.mutable_evidence()->set_worker(start.slot.worker);
      measured->measurement.mutable_evidence()->set_slot(start.slot.slot);
      measured->measurement.add_samples_ns(1);
      profiled.measured = std::move(measured);
      Feed(process, profiled);
    });
  }
}

void World::TakeForeign() {
  const int index = fate_.Below(static_cast<int>(scenario_.slots.size()));
  const SlotId slot = scenario_.slots[static_cast<size_t>(index)].info.id;
  if (promises_.Held(slot)) return;
  machines_.foreign.insert(slot);
  agenda_.At(Fate(1, 60), [this, slot] {
    machines_.foreign.erase(slot);
    SendSlots();
  });
  if (fate_.Likely(0.5)) SendSlots();  // else the dispatcher finds out by a refused lease
}

void World::TakeTrackerDown() {
  machines_.tracker_down = true;
  SendSlots();
  agenda_.At(Fate(1, 30), [this] {
    machines_.tracker_down = false;
    SendSlots();
  });
}

// A device measures far too little time; the tracker notices after some records (see Answer).
void World::Lie() {
  std::vector<SlotId> devices;
  for (const SimSlot& slot : scenario_.slots) {
    if (slot.info.device) devices.push_back(slot.info.id);
  }
  if (!devices.empty())
    machines_.lying.insert(
        devices[static_cast<size_t>(fate_.Below(static_cast<int>(devices.size())))]);
}

}  // namespace heddle::sim
