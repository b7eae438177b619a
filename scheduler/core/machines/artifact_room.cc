#include "scheduler/core/machines/artifact_room.h"

#include <algorithm>
#include <utility>

namespace heddle::scheduler {
namespace {

constexpr int64_t kLatest = 16;  // artifacts, about, that the mean is of

}  // namespace

void ArtifactRoom::Count(const Job& job, bool idle) {
  Counted now;
  bool unbuilt = false, begun = false;
  if (!job.final()) {
    for (TaskIndex index : job.in_flight) {
      for (const auto& [id, candidate] : job.tasks[index.value].open) {
        if (Is<Unbuilt>(candidate.where)) {
          unbuilt = true;
          continue;
        }
        begun = true;
        if (Is<Building>(candidate.where)) {
          ++now.building;
        } else {
          now.built_bytes += candidate.artifact_bytes;
          now.droppable |= idle && Is<Built>(candidate.where);
        }
      }
    }
  }
  now.idle_builds = idle && unbuilt;
  now.further_builds = !idle && unbuilt && begun;
  const auto place = counted_.try_emplace(job.id).first;
  const Counted before = std::exchange(place->second, now);
  if (now == Counted()) counted_.erase(place);
  built_bytes_ += now.built_bytes - before.built_bytes;
  building_ += now.building - before.building;
  const auto put = [&](std::set<JobId>* set, bool was, bool is) {
    if (was && !is) set->erase(job.id);
    if (!was && is) set->insert(job.id);
  };
  put(&droppable_, before.droppable, now.droppable);
  put(&idle_builds_, before.idle_builds, now.idle_builds);
  put(&further_builds_, before.further_builds, now.further_builds);
  SetLevel();
}

bool ArtifactRoom::TakeChange(std::vector<JobId>* jobs) {
  const Level told = std::exchange(told_, level_);
  if ((told == kRoom) != (level_ == kRoom))
    jobs->insert(jobs->end(), idle_builds_.begin(), idle_builds_.end());
  if ((told == kFull) != (level_ == kFull))
    jobs->insert(jobs->end(), further_builds_.begin(), further_builds_.end());
  return told != level_ || ToDrop();
}

void ArtifactRoom::Observe(int64_t bytes) {
  mean_bytes_ += (bytes - mean_bytes_) / kLatest;
  SetLevel();
}

void ArtifactRoom::SetLevel() {
  const int64_t sum = bytes();
  const auto over = [&](int64_t limit, bool reached) {
    return sum >= (reached ? Resume(limit) : limit);
  };
  if (over(max_bytes_, level_ == kFull)) {
    level_ = kFull;
  } else {
    level_ = over(max_bytes_ / 2, level_ != kRoom) ? kHalf : kRoom;
  }
}

BuildRoom ArtifactRoom::For(bool idle) const {
  if (idle) return Tight() ? BuildRoom::kNone : BuildRoom::kMany;
  return level_ == kFull ? BuildRoom::kOne : BuildRoom::kMany;
}

std::optional<JobId> ArtifactRoom::ToDrop() const {
  if (level_ != kFull || droppable_.empty()) return std::nullopt;
  return *droppable_.rbegin();
}

size_t ArtifactRoom::Share(size_t wanted, bool idle) const {
  const int64_t limit = idle ? max_bytes_ / 2 : max_bytes_;
  const int64_t room = (limit - bytes()) / std::max<int64_t>(1, mean_bytes_);
  return std::min(wanted, static_cast<size_t>(std::max<int64_t>(1, room)));
}

std::vector<CandidateId> DropBuilt(Job& job, int64_t bytes) {
  std::vector<CandidateId> dropped;
  for (auto index = job.in_flight.rbegin(); index != job.in_flight.rend(); ++index) {
    auto& open = job.tasks[index->value].open;
    for (auto place = open.rbegin(); place != open.rend() && bytes > 0; ++place) {
      Candidate& candidate = place->second;
      if (!Is<Built>(candidate.where)) continue;
      bytes -= std::exchange(candidate.artifact_bytes, 0);
      candidate.where = Unbuilt{};
      dropped.push_back(place->first);
    }
  }
  return dropped;
}

}  // namespace heddle::scheduler
