// Times a function: warm-up, then `repeats` samples, each the mean of enough calls to fill
// `min_repeat`, or with cold caches their median.
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
  // data as cold as between the other kernels of a model. A sample is then the median of calls that
  // are timed one by one. It also ends after three times `min_repeat`, including the flushing.
  int64_t flush_bytes = 0;
  // With flush_bytes: makes cold what is to be cold, untimed, instead of touching memory. Touching takes milliseconds without a
  // floating-point operation, after which some CPUs run vector code at two thirds of their speed for more than a millisecond.
  std::function<void()> evict = nullptr;
  // With flush_bytes: called after flushing, untimed. It may bring back what is to be warm.
  std::function<void()> warm = nullptr;
  // With flush_bytes: a call that takes less is repeated until it has about this, without flushing or warming in between, and
  // its time is the mean. For calls of so little time that reading the clock matters, and whose data stays warm.
  double least_ns = 0;
  absl::Duration limit =
      absl::Seconds(10);  // stops taking samples beyond this; at least one is taken
  // If not 0: what the fastest function of the same purpose takes. A function that is surely slower is not worth precise
  // times, so its timing ends early: with the sample at hand as soon as kFewCalls timed calls all took more than kFarSlower
  // times this, and after kFewSamples samples that all took more than kSlower times this.
  double rival_ns = 0;
};
inline constexpr int kFewCalls = 3;
inline constexpr double kFarSlower = 1.5;
inline constexpr int kFewSamples = 2;
inline constexpr double kSlower = 1.15;

struct Timing {
  std::vector<double> samples_ns;  // in the order taken; each is the time of a call
  int64_t calls = 0;               // all calls, including warm-up
  double MinNs() const;
  double MedianNs() const;
  double PercentileNs(double p) const;  // p in [0, 100], nearest rank
};

Timing TimeCalls(const std::function<void()>& call, const TimingOptions& options = {});

}  // namespace heddle::runtime
