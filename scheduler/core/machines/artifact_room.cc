#include "scheduler/core/machines/artifact_room.h"

#include <algorithm>
#include <utility>

namespace heddle::scheduler {
namespace {

constexpr int64_t kLatest = 16;  // artifacts, about, that the mean is of

}  // namespace

void ArtifactRoom::Count(const Job& job, bool idle) {
  Counted now;
  bool droppable = false;
  if (!job.final()) {
    for (TaskIndex index : job.in_flight) {
      for (const auto& [id, candidate] : job.tasks[index.value].open) {
        if (Is<Building>(candidate.where)) {
          ++now.building;
        } else if (!Is<Unbuilt>(candidate.where)) {
          now.built_bytes += candidate.artifact_bytes;
          droppable |= Is<Built>(candidate.where);
        }
      }
    }
  }
  const auto place = counted_.try_emplace(job.id).first;
  built_bytes_ += now.built_bytes - place->second.built_bytes;
  building_ += now.building - place->second.building;
  place->second = now;
  if (now.built_bytes == 0 && now.building == 0) counted_.erase(place);
  if (idle && droppable) {
    idle_.insert(job.id);
  } else {
    idle_.erase(job.id);
  }
  SetLevel();
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
  if (level_ != kFull || idle_.empty()) return std::nullopt;
  return *idle_.rbegin();
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
