// Bounds the code that is built and not measured yet. The ledger keeps it in memory, and builds would
// go on whatever devices there are.
//
// Code that waits counts by its size, and a candidate that is being built by the mean size of late. At
// DispatcherOptions.max_artifact_bytes no build starts until a quarter of them is free again. For jobs
// without a device, half of them is the limit, so that they leave room to the others. A job that has no
// code may always build one candidate. So every job makes progress, however long the code of others
// waits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>

#include "scheduler/core/job_state.h"

namespace heddle::scheduler {

class ArtifactRoom {
 public:
  explicit ArtifactRoom(int64_t max_bytes) : max_bytes_(max_bytes) {}

  // Counts the candidates of the job anew. Call when they have changed.
  void Count(const Job& job);
  // A candidate was built.
  void Observe(int64_t bytes);
  // Whether jobs that have code may build more.
  bool Open(bool has_device) const { return level_ == kRoom || (level_ == kHalf && has_device); }
  // Whether the answers of Open have changed since the last call of TakeChange.
  bool TakeChange() { return std::exchange(told_, level_) != level_; }
  // How many of `wanted` candidates a build stage that starts now may take: at least one.
  size_t Share(size_t wanted) const;
  // Counted now.
  int64_t bytes() const { return built_bytes_ + building_ * mean_bytes_; }

 private:
  enum Level { kRoom, kHalf, kFull };
  struct Counted {
    int64_t built_bytes = 0;
    int64_t building = 0;  // candidates
  };
  void SetLevel();

  const int64_t max_bytes_;
  int64_t mean_bytes_ = int64_t{128} << 10;  // until something is built
  int64_t built_bytes_ = 0, building_ = 0;   // the sums of counted_
  std::map<JobId, Counted> counted_;         // jobs with any
  Level level_ = kRoom, told_ = kRoom;
};

}  // namespace heddle::scheduler
