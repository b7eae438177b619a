// The clock for everything that is compared: it does not jump when somebody sets the wall clock.
#pragma once

#include <chrono>

#include "absl/time/time.h"

namespace heddle {

// As absl::Time, but of no calendar: only differences mean something. What is stored or shown as a
// date is absl::Now().
inline absl::Time MonotonicNow() {
  return absl::UnixEpoch() + absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch());
}

}  // namespace heddle
