// The quantiles of many durations, each to within 2 %. The memory does not grow with their number.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

namespace heddle::sim {

class Spread {
 public:
  void Add(double seconds) {
    const double step = std::log(std::max(seconds, kLeast) / kLeast) / kStep;
    const auto bucket = static_cast<size_t>(step);
    if (bucket >= counts_.size()) counts_.resize(bucket + 1);
    ++counts_[bucket];
    ++count_;
    sum_ += seconds;
    longest_ = std::max(longest_, seconds);
  }
  // The quantile `share` in seconds, such as 0.99 for the 99th percentile. 0 if there are no durations.
  double Quantile(double share) const {
    const auto rank = static_cast<int64_t>(std::ceil(share * static_cast<double>(count_)));
    int64_t passed = 0;
    for (size_t i = 0; i < counts_.size(); ++i) {
      passed += counts_[i];
      if (passed >= std::max<int64_t>(rank, 1))
        return std::min(longest_, kLeast * std::exp(kStep * (static_cast<double>(i) + 0.5)));
    }
    return 0;
  }
  int64_t count() const { return count_; }
  double sum() const { return sum_; }
  double longest() const { return longest_; }

 private:
  static constexpr double kLeast = 1e-9;  // seconds
  static constexpr double kStep = 0.02;   // between two buckets, as a logarithm
  std::vector<int64_t> counts_;
  int64_t count_ = 0;
  double sum_ = 0, longest_ = 0;
};

}  // namespace heddle::sim
