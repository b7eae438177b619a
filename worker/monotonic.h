// The local monotonic clock as absl::Time: limits and leases do not move when the wall clock is
// set.
#pragma once

#include <chrono>

#include "absl/time/time.h"

namespace heddle::worker {

inline absl::Time MonotonicNow() {
  return absl::UnixEpoch() + absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch());
}

}  // namespace heddle::worker
