// A monotonic clock for durations and timeouts. It does not jump when somebody sets the wall clock.
#pragma once

#include <chrono>

#include "absl/time/time.h"

namespace heddle {

// Only differences of these times mean something; they are not dates. Use absl::Now() for dates
// that are stored or shown.
inline absl::Time MonotonicNow() {
  return absl::UnixEpoch() + absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch());
}

}  // namespace heddle
