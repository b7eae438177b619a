// Waits for what another thread or process does.
#pragma once

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/clock.h"

namespace heddle::testing {

// Whether the condition comes true. It takes milliseconds as a rule; the limit of two minutes is for machines that stand still.
template <typename Condition>
bool Eventually(const Condition& condition) {
  const absl::Time limit = MonotonicNow() + absl::Minutes(2);
  while (!condition()) {
    if (MonotonicNow() > limit) return false;
    absl::SleepFor(absl::Milliseconds(10));
  }
  return true;
}

}  // namespace heddle::testing
