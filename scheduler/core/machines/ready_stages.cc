#include "scheduler/core/machines/ready_stages.h"

#include "scheduler/core/slot_index.h"

namespace heddle::scheduler {
namespace {

// Whether the job's device key is settled and it holds fewer than max_devices device slots.
bool MayTakeDevice(const Job& job) {
  if (job.finding) return false;
  if (job.params.max_devices == 0) return true;
  size_t held = 0;
  // Finished tasks count too: a stage may end after its last answer.
  for (const Task& task : job.tasks) held += task.profiles.size();
  return held < static_cast<size_t>(job.params.max_devices);
}

// Whether the work has to wait for `not_before`. If so, the job is woken at that time.
bool BacksOff(const Job& job, absl::Time not_before, Effects* effects) {
  if (not_before <= effects->now()) return false;
  effects->WakeAt(job.id, not_before);
  return true;
}

// First the stages that supply the device, then those that end a round, then those that begin one.
void AddTuningStages(const Job& job, BuildRoom room, Effects* effects,
                     std::vector<ReadyIndex::Item>* items) {
  struct Has {
    bool built = false, unbuilt = false;
  };
  std::vector<Has> candidates;
  candidates.reserve(job.in_flight.size());
  bool may_build = room != BuildRoom::kNone;
  for (TaskIndex index : job.in_flight) {
    Has& has = candidates.emplace_back();
    for (const auto& [id, candidate] : job.tasks[index.value].open) {
      has.built |= Is<Built>(candidate.where);
      has.unbuilt |= Is<Unbuilt>(candidate.where);
      may_build &= room == BuildRoom::kMany || Is<Unbuilt>(candidate.where);
    }
  }
  const bool may_profile = MayTakeDevice(job);
  for (v1::StageKind kind :
       {v1::STAGE_PROFILE, v1::STAGE_BUILD, v1::STAGE_UPDATE, v1::STAGE_PROPOSE}) {
    for (size_t i = 0; i < job.in_flight.size(); ++i) {
      const TaskIndex index = job.in_flight[i];
      const Task& task = job.tasks[index.value];
      const bool ready = kind == v1::STAGE_PROFILE  ? may_profile && candidates[i].built
                         : kind == v1::STAGE_BUILD  ? may_build && candidates[i].unbuilt
                         : kind == v1::STAGE_UPDATE ? Is<WantsUpdate>(task.phase)
                                                    : Is<WantsPropose>(task.phase);
      if (!ready || BacksOff(job, task.not_before, effects)) continue;
      const bool device = kind == v1::STAGE_PROFILE;
      items->push_back({{job.id, kind, index, std::nullopt, device},
                        device ? job.lane : SlotIndex::CpuLane(kind, job)});
    }
  }
}

}  // namespace

std::vector<ReadyIndex::Item> ReadyStages(const Job& job, const std::map<FetchId, Fetch>& fetches,
                                          BuildRoom room, Effects* effects) {
  std::vector<ReadyIndex::Item> items;
  auto add = [&](v1::StageKind kind, std::optional<FetchId> fetch) {
    items.push_back({{job.id, kind, std::nullopt, fetch, false}, SlotIndex::CpuLane(kind, job)});
  };
  for (const auto& [id, fetch] : fetches) {
    if (!fetch.live && !BacksOff(job, fetch.not_before, effects)) add(v1::STAGE_COMPILE, id);
  }
  if (job.paused || job.final()) return items;
  if (Is<Tuning>(job.phase)) {
    AddTuningStages(job, room, effects, &items);
  } else if (!job.live && !BacksOff(job, job.not_before, effects)) {
    if (!Is<Comparing>(job.phase)) {
      add(StageOf(job.phase), std::nullopt);
    } else if (MayTakeDevice(job)) {
      items.push_back({{job.id, v1::STAGE_COMPARE, std::nullopt, std::nullopt, true}, job.lane});
    }
  }
  return items;
}

}  // namespace heddle::scheduler
