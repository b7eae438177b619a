// The clock of time evaluation. Internal to the runtime.
#pragma once

#include <chrono>

namespace heddle::runtime {

using Clock = std::chrono::steady_clock;

inline double NsSince(Clock::time_point start) {
  return std::chrono::duration<double, std::nano>(Clock::now() - start).count();
}

}  // namespace heddle::runtime
