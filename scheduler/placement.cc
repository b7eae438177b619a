// Which work goes to which slot: the second half of the dispatcher.
#include <algorithm>

#include "scheduler/dispatcher.h"

namespace heddle::scheduler {
namespace {

using CoreSet = std::set<std::pair<std::string, int>>;  // host, core

template <typename Phase>
int CountWhere(const Task& task) {
  return static_cast<int>(std::count_if(
      task.round.begin(), task.round.end(),
      [](const auto& entry) { return std::holds_alternative<Phase>(entry.second.where); }));
}

bool Overlaps(const SlotInfo& slot, const CoreSet& cores) {
  return std::any_of(slot.cores.begin(), slot.cores.end(), [&](int core) {
    return cores.count({slot.host, core}) > 0;
  });
}

bool SharesCore(const SlotInfo& slot, const std::string& host, const std::vector<int>& cores) {
  if (slot.host != host) return false;
  return std::any_of(slot.cores.begin(), slot.cores.end(), [&](int core) {
    return std::find(cores.begin(), cores.end(), core) != cores.end();
  });
}

}  // namespace

std::vector<WorkItem> Dispatcher::ReadyWork(absl::Time now) const {
  std::vector<WorkItem> work;
  if (!store_problem_.empty()) return work;  // nothing may happen that cannot be remembered
  for (const auto& [id, fetch] : fetches_) {
    if (!fetch.live && fetch.not_before <= now) {
      work.push_back({fetch.job, v1::STAGE_COMPILE, std::nullopt, id, false});
    }
  }
  for (const auto& [id, job] : jobs_) {
    if (job.paused || job.final()) continue;
    if (std::holds_alternative<Tuning>(job.phase)) {
      AddTuningWork(job, now, &work);
    } else if (!job.live && job.not_before <= now) {
      const bool importing = std::holds_alternative<Importing>(job.phase);
      work.push_back({id, importing ? v1::STAGE_IMPORT : v1::STAGE_COMPILE, std::nullopt,
                      std::nullopt, false});
    }
  }
  policy_->Order(&work);
  return work;
}

// Stages that feed the device come first, then what ends a round, then what begins one.
void Dispatcher::AddTuningWork(const Job& job, absl::Time now, std::vector<WorkItem>* work) const {
  for (v1::StageKind kind :
       {v1::STAGE_PROFILE, v1::STAGE_BUILD, v1::STAGE_UPDATE, v1::STAGE_PROPOSE}) {
    for (TaskIndex index : job.in_flight) {
      const Task& task = job.tasks[index.value];
      if (task.not_before > now) continue;
      bool ready = false;
      switch (kind) {
        case v1::STAGE_PROFILE:
          ready = MayTakeDevice(job) && CountWhere<Built>(task) > 0;
          break;
        case v1::STAGE_BUILD:
          ready = CountWhere<Unbuilt>(task) > 0;
          break;
        case v1::STAGE_UPDATE:
          ready = std::holds_alternative<WantsUpdate>(task.phase);
          break;
        default:
          ready = std::holds_alternative<WantsPropose>(task.phase);
          break;
      }
      if (ready) work->push_back({job.id, kind, index, std::nullopt, kind == v1::STAGE_PROFILE});
    }
  }
}

bool Dispatcher::MayTakeDevice(const Job& job) const {
  if (job.params.max_devices == 0) return true;
  size_t held = 0;
  // Of finished tasks too: a stage may end after its last answer.
  for (const Task& task : job.tasks) held += task.profiles.size();
  return held < static_cast<size_t>(job.params.max_devices);
}

bool Dispatcher::Suits(const SlotInfo& slot, const WorkItem& work) const {
  if (slot.device != work.device) return false;
  if (!work.device) return true;
  const JobParams& needs = jobs_.at(work.job).params;
  if (slot.target != needs.target) return false;
  if (!needs.device_key.empty() && slot.device_key != needs.device_key) return false;
  return needs.threads == 0 || static_cast<int>(slot.cores.size()) == needs.threads;
}

bool Dispatcher::SlotFree(const SlotInfo& slot) const {
  if (!tracker_problem_.empty() || !slot.usable) return false;
  auto trouble = trouble_.find(slot.id);
  if (trouble != trouble_.end() && trouble->second.not_before > now_) return false;
  for (const auto& [id, stage] : live_) {
    if (stage.slot == slot.id || SharesCore(slot, stage.host, stage.cores)) return false;
  }
  return std::none_of(slots_.begin(), slots_.end(), [&](const SlotInfo& other) {
    return other.foreign && SharesCore(slot, other.host, other.cores);
  });
}

// The smallest free slot that suits, or null.
const SlotInfo* Dispatcher::Place(const WorkItem& work, const CoreSet& reserved) const {
  const SlotInfo* best = nullptr;
  for (const SlotInfo& slot : slots_) {
    if (!Suits(slot, work) || Overlaps(slot, reserved) || !SlotFree(slot)) continue;
    if (best == nullptr || slot.cores.size() < best->cores.size()) best = &slot;
  }
  return best;
}

// Work whose turn it is, and whose slot nobody holds but for some of its cores, keeps those that
// are free from being taken again: otherwise a slot of several cores would wait for ever while
// smaller ones come and go.
void Dispatcher::Reserve(const WorkItem& work, CoreSet* reserved) const {
  for (const SlotInfo& slot : slots_) {
    if (!Suits(slot, work) || !slot.usable || Overlaps(slot, *reserved)) continue;
    const bool held = std::any_of(live_.begin(), live_.end(),
                                  [&](const auto& entry) { return entry.second.slot == slot.id; });
    auto trouble = trouble_.find(slot.id);
    if (held || (trouble != trouble_.end() && trouble->second.not_before > now_)) continue;
    for (int core : slot.cores) reserved->insert({slot.host, core});
    return;
  }
}

void Dispatcher::Schedule() {
  if (!tracker_problem_.empty()) return;
  for (bool started = true; started;) {
    started = false;
    CoreSet reserved;
    for (const WorkItem& work : ReadyWork(now_)) {
      if (const SlotInfo* slot = Place(work, reserved)) {
        Start(work, *slot);
        started = true;
        break;  // what is ready has changed
      }
      Reserve(work, &reserved);
    }
  }
}

// Candidates are shared out among the slots that are free right now.
size_t Dispatcher::ShareOf(int candidates, const WorkItem& work) const {
  int free_slots = 0;
  for (const SlotInfo& slot : slots_) free_slots += Suits(slot, work) && SlotFree(slot);
  return static_cast<size_t>((candidates + free_slots - 1) / std::max(1, free_slots));
}

std::vector<CandidateId> Dispatcher::TakeUnbuilt(Task& task, AttemptId attempt,
                                                 const WorkItem& work) {
  const size_t share = ShareOf(CountWhere<Unbuilt>(task), work);
  std::vector<CandidateId> taken;
  for (auto& [id, candidate] : task.round) {
    if (taken.size() == share) break;
    if (!std::holds_alternative<Unbuilt>(candidate.where)) continue;
    candidate.where = Building{attempt};
    taken.push_back(id);
  }
  return taken;
}

std::vector<CandidateId> Dispatcher::TakeBuilt(Task& task, AttemptId attempt,
                                               const WorkItem& work) {
  const size_t share = ShareOf(CountWhere<Built>(task), work);
  std::vector<CandidateId> taken;
  for (auto& [id, candidate] : task.round) {
    if (taken.size() == share) break;
    if (!std::holds_alternative<Built>(candidate.where)) continue;
    candidate.where = Profiling{attempt};
    taken.push_back(id);
  }
  return taken;
}

void Dispatcher::Start(const WorkItem& work, const SlotInfo& slot) {
  const AttemptId attempt{next_attempt_++};
  StartStage start{attempt, work.job, work.kind, work.task, work.fetch, slot.id, {}, 0};
  Job& job = jobs_.at(work.job);
  if (work.fetch) {
    fetches_.at(*work.fetch).live = attempt;
  } else if (!work.task) {
    job.live = attempt;
  } else {
    Task& task = job.tasks[work.task->value];
    switch (work.kind) {
      case v1::STAGE_PROPOSE:
        task.phase = Proposing{attempt};
        start.count = std::min(job.params.batch, task.remaining());
        break;
      case v1::STAGE_BUILD:
        start.candidates = TakeUnbuilt(task, attempt, work);
        break;
      case v1::STAGE_PROFILE:
        start.candidates = TakeBuilt(task, attempt, work);
        task.profiles.insert(attempt);
        feeding_.insert({work.job, *work.task});
        break;
      default:
        task.phase = Updating{attempt};
        break;
    }
  }
  LiveStage stage;
  stage.id = attempt;
  stage.job = work.job;
  stage.kind = work.kind;
  stage.task = work.task;
  stage.fetch = work.fetch;
  stage.slot = slot.id;
  stage.host = slot.host;
  stage.cores = slot.cores;
  stage.candidates.insert(start.candidates.begin(), start.candidates.end());
  live_.emplace(attempt, std::move(stage));
  policy_->Served(work);
  Emit(std::move(start));
}

}  // namespace heddle::scheduler
