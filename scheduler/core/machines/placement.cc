#include "scheduler/core/machines/placement.h"

#include <algorithm>
#include <utility>

#include "scheduler/core/machines/candidate_flow.h"

namespace heddle::scheduler {
namespace {

// Most waiting stages per pass that get cores reserved.
constexpr int kMaxReservations = 64;

}  // namespace

bool Placement::TakeSlots(const SlotsChanged& event, absl::Time now) {
  tracker_problem_ = event.problem;
  std::vector<SlotInfo> slots = event.slots;
  auto by_id = [](const SlotInfo& a, const SlotInfo& b) { return a.id < b.id; };
  std::sort(slots.begin(), slots.end(), by_id);
  // Slots that are gone for good are forgotten, to bound the memory.
  std::erase_if(trouble_, [&](const auto& entry) {
    SlotInfo slot;
    slot.id = entry.first;
    return entry.second.not_before <= now &&
           !std::binary_search(slots.begin(), slots.end(), slot, by_id);
  });
  if (slots == slots_) return false;
  slots_ = std::move(slots);
  slot_index_.Reset(slots_);
  return true;
}

const std::string* Placement::Avoided(const Job& job, const StageWork& work) const {
  if (job.accusers.empty() || work.fetch) return nullptr;
  const auto accuser = job.accusers.find(AccuserKey(work));
  if (accuser == job.accusers.end()) return nullptr;
  const bool another =
      slot_index_.AnotherWorker(SlotIndex::LaneOf(work.kind, job), accuser->second);
  return another ? &accuser->second : nullptr;
}

std::optional<Placement::Assignment> Placement::Next(const Policy& policy, const Jobs& jobs) const {
  if (!tracker_problem_.empty()) return std::nullopt;
  // If no lane has both ready work and a free slot, nothing can start, whatever the order.
  auto any_free = [this] {
    for (int lane = 0; lane < ready_.lanes(); ++lane) {
      if (ready_.Count(lane) > 0 && slot_index_.AnyFree(lane)) return true;
    }
    return false;
  };
  if (!any_free()) return std::nullopt;
  struct Line {
    int lane;
    ReadyIndex::Cursor cursor;
  };
  std::vector<Line> lines;
  for (int lane = 0; lane < ready_.lanes(); ++lane) {
    if (ready_.Count(lane) == 0 || !slot_index_.Open(lane)) continue;
    ReadyIndex::Cursor cursor(ready_, policy, lane);
    if (!cursor.done()) lines.push_back({lane, std::move(cursor)});
  }
  SlotIndex::Reserved reserved;
  int reservations = 0;
  while (!lines.empty()) {
    auto best = lines.begin();
    for (auto it = best + 1; it != lines.end(); ++it) {
      if (it->cursor.Before(best->cursor)) best = it;
    }
    const WorkItem& work = best->cursor.node().work;
    const std::string* avoided = Avoided(jobs.at(work.job), work);
    if (const SlotInfo* slot = slot_index_.Choose(best->lane, reserved, avoided))
      return Assignment{work, slot, best->cursor.node().since};
    // Work after one that avoids a worker may still run on that worker.
    const bool more = slot_index_.Reserve(best->lane, &reserved, avoided) || avoided != nullptr;
    if (more && ++reservations < kMaxReservations) {
      best->cursor.Next();
      if (best->cursor.done()) lines.erase(best);
    } else {
      lines.erase(best);
    }
  }
  return std::nullopt;
}

void Placement::StageStarted(const Assignment& assignment, const Job& job) {
  const SlotInfo& slot = *assignment.slot;
  slot_index_.Hold(slot.id, slot.host, slot.cores);
  if (assignment.work.device) {
    ready_.CountStart(job.lane);
  } else {
    // The stage passes over the waiting work of each CPU lane that the slot serves.
    for (const int lane : slot_index_.LanesOf(slot)) ready_.CountStart(lane);
  }
}

void Placement::StageEnded(const LiveStage& stage, const StageFinished& event,
                           const DispatcherOptions& options, absl::Time now) {
  Trouble& trouble = trouble_[stage.slot];
  if (!Blameless(event)) {
    trouble = {};
  } else if (!stage.cancelled) {
    trouble.why = event.fault.message;
    trouble.not_before = now + Backoff(options, options.slot_backoff, trouble.refusals++);
  }
  slot_index_.Release(stage.slot, stage.host, stage.cores);
  slot_index_.BackOff(stage.slot,
                      trouble.not_before > now ? trouble.not_before : absl::InfinitePast());
}

size_t Placement::FreeShare(int candidates, int lane) const {
  const int free_slots = slot_index_.Free(lane);
  return static_cast<size_t>((candidates + free_slots - 1) / std::max(1, free_slots));
}

size_t Placement::BuildShare(const Task& task, int lane) const {
  const int unbuilt = CountWhere<Unbuilt>(task);
  if (ready_.Count(lane) > 1) return FreeShare(unbuilt, lane);
  const int slots = std::max(1, slot_index_.Usable(lane));
  const int round = task.rounds.empty() ? unbuilt : std::max(unbuilt, task.rounds.back().size);
  return static_cast<size_t>((round + slots - 1) / slots);
}

size_t Placement::ProfileShare(const Task& task, int lane) const {
  return FreeShare(CountWhere<Built>(task), lane);
}

std::string Placement::Refusal(const SlotId& slot) const {
  const auto found = trouble_.find(slot);
  return found == trouble_.end() ? "" : found->second.why;
}

absl::Time Placement::BacksOffUntil(const SlotId& slot) const {
  const auto found = trouble_.find(slot);
  return found == trouble_.end() ? absl::InfinitePast() : found->second.not_before;
}

}  // namespace heddle::scheduler
