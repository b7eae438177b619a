// The part of Abseil's Duration that the runtime uses; see README.md of compiler/runtime/alone.
#pragma once

#include <chrono>

namespace absl {
inline namespace heddle_alone {

using Duration = std::chrono::nanoseconds;

constexpr Duration Seconds(long number) { return std::chrono::seconds(number); }
constexpr Duration Milliseconds(long number) { return std::chrono::milliseconds(number); }
constexpr double ToDoubleNanoseconds(Duration duration) {
  return static_cast<double>(duration.count());
}

}  // namespace heddle_alone
}  // namespace absl
