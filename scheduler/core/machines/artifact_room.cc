#include "scheduler/core/machines/artifact_room.h"

#include <algorithm>
#include <utility>

namespace heddle::scheduler {
namespace {

constexpr int64_t kLatest = 16;  // artifacts, about, that the mean is of

}  // namespace

void ArtifactRoom::Count(const Job& job, bool idle, absl::Time now) {
  Counted found;
  bool droppable = false, unbuilt = false, begun = false;
  if (!job.final()) {
    for (TaskIndex index : job.in_flight) {
      for (const auto& [id, candidate] : job.tasks[index.value].open) {
        if (Is<Unbuilt>(candidate.where)) {
          unbuilt = true;
          continue;
        }
        begun = true;
        if (Is<Building>(candidate.where)) {
          ++found.building;
        } else {
          found.built_bytes += candidate.artifact_bytes;
          droppable |= Is<Built>(candidate.where);
        }
      }
    }
  }
  found.idle_builds = idle && unbuilt;
  found.further_builds = !idle && unbuilt && begun;
  const auto place = counted_.try_emplace(job.id).first;
  const Counted before = place->second;
  if (idle && droppable) found.idle_since = std::min(before.idle_since, now);
  place->second = found;
  if (found == Counted()) counted_.erase(place);
  built_bytes_ += found.built_bytes - before.built_bytes;
  building_ += found.building - before.building;
  if (before.idle_since != found.idle_since) {
    if (const auto since = idle_.find(before.idle_since); since != idle_.end()) {
      since->second.erase(job.id);
      if (since->second.empty()) idle_.erase(since);
    }
    if (found.idle_since != absl::InfiniteFuture()) idle_[found.idle_since].insert(job.id);
  }
  const auto put = [&](std::set<JobId>* set, bool was, bool is) {
    if (was && !is) set->erase(job.id);
    if (!was && is) set->insert(job.id);
  };
  put(&idle_builds_, before.idle_builds, found.idle_builds);
  put(&further_builds_, before.further_builds, found.further_builds);
  SetLevel();
}

bool ArtifactRoom::TakeChange(absl::Time now, std::vector<JobId>* jobs) {
  const Level told = std::exchange(told_, level_);
  if ((told == kRoom) != (level_ == kRoom))
    jobs->insert(jobs->end(), idle_builds_.begin(), idle_builds_.end());
  if ((told == kFull) != (level_ == kFull))
    jobs->insert(jobs->end(), further_builds_.begin(), further_builds_.end());
  return told != level_ || ToDrop(now);
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

std::optional<JobId> ArtifactRoom::ToDrop(absl::Time now) const {
  if (NextDrop() > now) return std::nullopt;
  return *idle_.begin()->second.rbegin();
}

absl::Time ArtifactRoom::NextDrop() const {
  return level_ != kFull || idle_.empty() ? absl::InfiniteFuture() : idle_.begin()->first + grace_;
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
