// Times a function: warm-up, then `repeats` samples, each the mean of enough calls to fill
// `min_repeat`.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/time/time.h"

namespace heddle::runtime {

struct TimingOptions {
  int repeats = 5;
  absl::Duration min_repeat = absl::Milliseconds(10);
  int warmup_calls = 1;
  // If not 0, this much memory is touched before every call, untimed, so that the call finds its
  // data as cold as between the other kernels of a model. A sample is then the mean of calls that
  // are timed one by one. It also ends after three times `min_repeat`, including the flushing.
  int64_t flush_bytes = 0;
  // With flush_bytes: called after flushing, untimed. It may bring back what is to be warm.
  std::function<void()> warm = nullptr;
  absl::Duration limit =
      absl::Seconds(10);  // stops taking samples beyond this; at least one is taken
};

struct Timing {
  std::vector<double> samples_ns;  // in the order taken; each is the mean time of a call
  int64_t calls = 0;               // all calls, including warm-up
  double MinNs() const;
  double MedianNs() const;
  double PercentileNs(double p) const;  // p in [0, 100], nearest rank
};

Timing TimeCalls(const std::function<void()>& call, const TimingOptions& options = {});

}  // namespace heddle::runtime
