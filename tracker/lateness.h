// How late heartbeats are read that arrive now. A tracker that gets too little processor time reads them late, and
// then silence says little about a worker. Pure.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>

#include "absl/time/time.h"

namespace heddle::tracker {

class Lateness {
 public:
  // A heartbeat arrived so long after it was due; one that came earlier counts as on time.
  void Add(absl::Duration late) {
    latest_[next_] = std::max(absl::ZeroDuration(), late);
    next_ = (next_ + 1) % kLatest;
  }
  // The median of the latest: a few workers that are slow themselves do not change it, nor do a few whose
  // heartbeats are read first. 0 at the beginning.
  absl::Duration Median() const {
    std::array<absl::Duration, kLatest> sorted = latest_;
    std::nth_element(sorted.begin(), sorted.begin() + kLatest / 2, sorted.end());
    return sorted[kLatest / 2];
  }

  static constexpr size_t kLatest = 31;

 private:
  std::array<absl::Duration, kLatest> latest_{};
  size_t next_ = 0;
};

}  // namespace heddle::tracker
