#include "scheduler/core/machines/artifact_room.h"

#include <algorithm>

namespace heddle::scheduler {
namespace {

constexpr int64_t kLatest = 16;  // artifacts, about, that the mean is of

}  // namespace

void ArtifactRoom::Count(const Job& job) {
  Counted now;
  if (!job.final()) {
    for (TaskIndex index : job.in_flight) {
      for (const auto& [id, candidate] : job.tasks[index.value].open) {
        if (Is<Building>(candidate.where)) {
          ++now.building;
        } else if (!Is<Unbuilt>(candidate.where)) {
          now.built_bytes += candidate.artifact_bytes;
        }
      }
    }
  }
  const auto place = counted_.try_emplace(job.id).first;
  built_bytes_ += now.built_bytes - place->second.built_bytes;
  building_ += now.building - place->second.building;
  place->second = now;
  if (now.built_bytes == 0 && now.building == 0) counted_.erase(place);
  SetLevel();
}

void ArtifactRoom::Observe(int64_t bytes) {
  mean_bytes_ += (bytes - mean_bytes_) / kLatest;
  SetLevel();
}

// A limit that was reached counts until the sum is below three quarters of it. Otherwise each measured
// candidate would have all jobs looked at.
void ArtifactRoom::SetLevel() {
  const int64_t sum = bytes();
  const auto over = [&](int64_t limit, bool reached) {
    return sum >= (reached ? limit / 4 * 3 : limit);
  };
  if (over(max_bytes_, level_ == kFull)) {
    level_ = kFull;
  } else {
    level_ = over(max_bytes_ / 2, level_ != kRoom) ? kHalf : kRoom;
  }
}

size_t ArtifactRoom::Share(size_t wanted) const {
  const int64_t room = (max_bytes_ - bytes()) / std::max<int64_t>(1, mean_bytes_);
  return std::min(wanted, static_cast<size_t>(std::max<int64_t>(1, room)));
}

}  // namespace heddle::scheduler
