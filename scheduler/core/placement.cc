// Which work goes to which slot: the second half of the dispatcher.
#include <algorithm>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "scheduler/core/dispatcher.h"

namespace heddle::scheduler {
namespace {

// Cores are kept for so many waiting stages at a time; the ones after these wait for their turn.
constexpr int kMaxReservations = 64;

template <typename Phase>
int CountWhere(const Task& task) {
  return static_cast<int>(std::count_if(task.open.begin(), task.open.end(), [](const auto& entry) {
    return std::holds_alternative<Phase>(entry.second.where);
  }));
}

}  // namespace

std::vector<WorkItem> Dispatcher::ReadyWork() const {
  // Nothing may happen that cannot be remembered.
  return store_problem_.empty() ? ready_.All(*policy_) : std::vector<WorkItem>();
}

bool Dispatcher::SlotFree(const SlotInfo& slot) const {
  return tracker_problem_.empty() && slot_index_.IsFree(slot);
}

bool Dispatcher::Suits(const SlotInfo& slot, const WorkItem& work) const {
  return SlotIndex::Suits(slot, work.kind, jobs_.at(work.job).params);
}

// Finds out what of the job is ready, in its own order.
void Dispatcher::UpdateReady(const Job& job, bool rank_again) {
  std::vector<ReadyIndex::Item> work;
  auto later = [&](absl::Time not_before) {
    if (not_before <= now_) return false;
    WakeAt(job.id, not_before);
    return true;
  };
  for (const auto& [id, fetch] : fetches_) {
    if (fetch.job != job.id || fetch.live || later(fetch.not_before)) continue;
    work.push_back({{job.id, v1::STAGE_COMPILE, std::nullopt, id, false},
                    SlotIndex::CpuLane(v1::STAGE_COMPILE, job.params)});
  }
  if (!job.paused && !job.final()) {
    if (std::holds_alternative<Tuning>(job.phase)) {
      AddTuningWork(job, &work);
    } else if (!job.live && !later(job.not_before)) {
      const bool importing = std::holds_alternative<Importing>(job.phase);
      const v1::StageKind kind = importing ? v1::STAGE_IMPORT : v1::STAGE_COMPILE;
      work.push_back({{job.id, kind, std::nullopt, std::nullopt, false},
                      SlotIndex::CpuLane(kind, job.params)});
    }
  }
  ready_.Set(job, work, rank_again, policy_.get(), now_);
}

// Stages that feed the device come first, then what ends a round, then what begins one.
void Dispatcher::AddTuningWork(const Job& job, std::vector<ReadyIndex::Item>* work) {
  struct Has {
    bool built = false, unbuilt = false;
  };
  std::vector<Has> rounds;
  rounds.reserve(job.in_flight.size());
  for (TaskIndex index : job.in_flight) {
    Has& has = rounds.emplace_back();
    for (const auto& [id, candidate] : job.tasks[index.value].open) {
      has.built |= std::holds_alternative<Built>(candidate.where);
      has.unbuilt |= std::holds_alternative<Unbuilt>(candidate.where);
    }
  }
  const bool may_profile = MayTakeDevice(job);
  for (v1::StageKind kind :
       {v1::STAGE_PROFILE, v1::STAGE_BUILD, v1::STAGE_UPDATE, v1::STAGE_PROPOSE}) {
    for (size_t i = 0; i < job.in_flight.size(); ++i) {
      const TaskIndex index = job.in_flight[i];
      const Task& task = job.tasks[index.value];
      bool ready = false;
      switch (kind) {
        case v1::STAGE_PROFILE:
          ready = may_profile && rounds[i].built;
          break;
        case v1::STAGE_BUILD:
          ready = rounds[i].unbuilt;
          break;
        case v1::STAGE_UPDATE:
          ready = std::holds_alternative<WantsUpdate>(task.phase);
          break;
        default:
          ready = std::holds_alternative<WantsPropose>(task.phase);
          break;
      }
      if (!ready) continue;
      if (task.not_before > now_) {
        WakeAt(job.id, task.not_before);
        continue;
      }
      const bool device = kind == v1::STAGE_PROFILE;
      work->push_back({{job.id, kind, index, std::nullopt, device},
                       device ? job.lane : SlotIndex::CpuLane(kind, job.params)});
    }
  }
}

bool Dispatcher::MayTakeDevice(const Job& job) const {
  if (job.finding) return false;
  if (job.params.max_devices == 0) return true;
  size_t held = 0;
  // Of finished tasks too: a stage may end after its last answer.
  for (const Task& task : job.tasks) held += task.profiles.size();
  return held < static_cast<size_t>(job.params.max_devices);
}

void Dispatcher::TakeSlots(const SlotsChanged& event) {
  tracker_problem_ = event.problem;
  std::vector<SlotInfo> slots = event.slots;
  std::sort(slots.begin(), slots.end(),
            [](const SlotInfo& a, const SlotInfo& b) { return a.id < b.id; });
  // Slots that are gone for good must not be remembered for ever.
  std::erase_if(trouble_, [&](const auto& entry) {
    SlotInfo slot;
    slot.id = entry.first;
    return entry.second.not_before <= now_ &&
           !std::binary_search(slots.begin(), slots.end(), slot,
                               [](const SlotInfo& a, const SlotInfo& b) { return a.id < b.id; });
  });
  if (slots == slots_) return;
  slots_ = std::move(slots);
  slot_index_.Reset(slots_);
  for (int lane = 0; lane < slot_index_.lanes(); ++lane)
    forecast_.SetSlots(lane, slot_index_.Count(lane), slot_index_.Displaced(lane));
  for (const auto& [id, job] : jobs_) {
    // What begins depends on the devices there are, and when it will be done.
    const bool tuned_out = std::holds_alternative<Tuning>(job.phase) && job.queue.empty() &&
                           !job.params.device_key.empty() &&
                           job.params.deadline == absl::InfiniteFuture();
    if (!job.final() && !tuned_out) Touch(id);
  }
}

// Whoever is first by the policy takes the smallest free slot that suits. Work whose turn it is,
// and whose slot nobody holds but for some of its cores, keeps those that are free from being taken
// again: otherwise a slot of several cores would wait for ever while smaller ones come and go.
void Dispatcher::Schedule() {
  if (!tracker_problem_.empty() || !store_problem_.empty()) return;
  // Without a slot that is free for something, no order and no reservation changes anything.
  auto any_place = [this] {
    for (int lane = 0; lane < ready_.lanes(); ++lane) {
      if (ready_.Count(lane) > 0 && slot_index_.AnyFree(lane)) return true;
    }
    return false;
  };
  for (bool started = true; started && any_place();) {
    started = false;
    struct Line {
      int lane;
      ReadyIndex::Cursor cursor;
    };
    std::vector<Line> lanes;
    for (int lane = 0; lane < ready_.lanes(); ++lane) {
      if (ready_.Count(lane) == 0 || !slot_index_.Open(lane)) continue;
      ReadyIndex::Cursor cursor(ready_, *policy_, lane);
      if (!cursor.done()) lanes.push_back({lane, std::move(cursor)});
    }
    SlotIndex::Reserved reserved = slot_index_.NoneReserved();
    int reservations = 0;
    while (!lanes.empty() && !started) {
      auto best = lanes.begin();
      for (auto it = best + 1; it != lanes.end(); ++it) {
        if (it->cursor.Before(best->cursor)) best = it;
      }
      if (const SlotInfo* slot = slot_index_.Place(best->lane, reserved)) {
        const WorkItem work = best->cursor.node().work;  // the index changes with the start
        Start(work, *slot);
        started = true;  // what is ready has changed
      } else if (slot_index_.Reserve(best->lane, &reserved) && ++reservations < kMaxReservations) {
        best->cursor.Next();
        if (best->cursor.done()) lanes.erase(best);
      } else {
        lanes.erase(best);
      }
    }
  }
}

// Candidates are shared out among the slots that are free right now.
size_t Dispatcher::ShareOf(int candidates, int lane) const {
  const int free_slots = slot_index_.Free(lane);
  return static_cast<size_t>((candidates + free_slots - 1) / std::max(1, free_slots));
}

// Where nothing else of the lane waits, slots that come free will build for this task as well: then
// each takes its part of a round among all slots, so that none, and no slow host least of all,
// keeps the round waiting, and a round needs no more stages than there are slots.
std::vector<CandidateId> Dispatcher::TakeUnbuilt(Task& task, AttemptId attempt, int lane) {
  const int unbuilt = CountWhere<Unbuilt>(task);
  size_t share = ShareOf(unbuilt, lane);
  if (ready_.Count(lane) <= 1) {
    const int slots = std::max(1, slot_index_.Usable(lane));
    const int round = task.rounds.empty() ? unbuilt : std::max(unbuilt, task.rounds.back().size);
    share = static_cast<size_t>((round + slots - 1) / slots);
  }
  std::vector<CandidateId> taken;
  for (auto& [id, candidate] : task.open) {
    if (taken.size() == share) break;
    if (!std::holds_alternative<Unbuilt>(candidate.where)) continue;
    candidate.where = Building{attempt};
    taken.push_back(id);
  }
  return taken;
}

std::vector<CandidateId> Dispatcher::TakeBuilt(Task& task, AttemptId attempt, int lane) {
  const size_t share = ShareOf(CountWhere<Built>(task), lane);
  std::vector<CandidateId> taken;
  for (auto& [id, candidate] : task.open) {
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
        start.count = std::min(job.params.batch, task.unproposed());
        break;
      case v1::STAGE_BUILD:
        start.candidates = TakeUnbuilt(task, attempt, SlotIndex::CpuLane(work.kind, job.params));
        break;
      case v1::STAGE_PROFILE:
        start.candidates = TakeBuilt(task, attempt, job.lane);
        start.before = task.rounds.back().end;
        task.profiles.insert(attempt);
        feeding_.insert({work.job, *work.task});
        break;
      default:
        start.before = MeasuredBefore(task).value_or(
            task.rounds.empty() ? CandidateId{job.next_candidate} : task.rounds.front().first);
        task.phase = Updating{attempt};
        break;
    }
  }
  LiveStage stage;
  stage.before = start.before;
  stage.id = attempt;
  stage.job = work.job;
  stage.kind = work.kind;
  stage.task = work.task;
  stage.fetch = work.fetch;
  stage.slot = slot.id;
  stage.host = slot.host;
  stage.cores = slot.cores;
  stage.candidates.insert(start.candidates.begin(), start.candidates.end());
  stage.started = stage.unit_since = now_;
  stage.worker_class = DurationModel::ClassId(
      absl::StrCat(slot.target, "|", slot.device_key, "|", slot.cores.size()));
  slot_index_.Hold(slot.id, slot.host, slot.cores);
  // Work of both CPU lanes is passed over by what takes a slot that would suit it.
  ready_.CountStart(work.device ? job.lane : SlotIndex::kCpuLane);
  if (!work.device && slot.builds_cuda) ready_.CountStart(SlotIndex::kCudaBuildLane);
  const LiveStage& live = live_.emplace(attempt, std::move(stage)).first->second;
  policy_->Started(work, job, live);
  Emit(std::move(start));
  UpdateReady(job, true);
}

}  // namespace heddle::scheduler
