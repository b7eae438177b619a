#include "client/modules/latency_histogram.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "base/quantiles.h"

namespace heddle::client {
namespace {

TEST(LatencyHistogram, PercentilesAreWithinTheStatedError) {
  std::mt19937_64 rng(1);
  std::lognormal_distribution<double> latency(11, 2);  // 60 us, with a long tail
  for (const size_t count : {1u, 2u, 10u, 1000u, 100'000u}) {
    LatencyHistogram histogram;
    std::vector<int64_t> all;
    for (size_t i = 0; i < count; ++i) {
      all.push_back(static_cast<int64_t>(latency(rng)));
      histogram.Add(all.back());
    }
    std::sort(all.begin(), all.end());
    EXPECT_EQ(histogram.count(), static_cast<int64_t>(count));
    for (const double p : {0.0, 1.0, 50.0, 90.0, 99.0, 99.9, 100.0}) {
      const double exact = static_cast<double>(QuantileOfSorted(all, p / 100));
      EXPECT_NEAR(histogram.Percentile(p), exact, 0.002 * exact + 0.5) << p << " of " << count;
    }
    EXPECT_EQ(histogram.Percentile(0), static_cast<double>(all.front()));
    EXPECT_EQ(histogram.Percentile(100), static_cast<double>(all.back()));
  }
}

TEST(LatencyHistogram, SmallValuesAreExactAndLargeOnesAreCapped) {
  LatencyHistogram histogram;
  for (const int64_t ns : {3, 1, 2, -7}) histogram.Add(ns);
  EXPECT_EQ(histogram.Percentile(0), 0);
  EXPECT_EQ(histogram.Percentile(50), 1);
  EXPECT_EQ(histogram.Percentile(100), 3);
  histogram.Add(int64_t{1} << 60);
  EXPECT_EQ(histogram.Percentile(100), static_cast<double>((int64_t{1} << 40) - 1));
}

TEST(LatencyHistogram, MergedOnesSayWhatOneWouldSay) {
  LatencyHistogram all, odd, even, empty;
  for (int64_t ns = 1; ns <= 5000; ++ns) {
    all.Add(ns * ns);
    (ns % 2 == 1 ? odd : even).Add(ns * ns);
  }
  empty.Merge(odd);
  empty.Merge(even);
  empty.Merge(LatencyHistogram());
  EXPECT_EQ(empty.count(), all.count());
  for (const double p : {0.0, 10.0, 50.0, 99.0, 100.0})
    EXPECT_EQ(empty.Percentile(p), all.Percentile(p));
}

TEST(LatencyHistogram, WithoutCallsThereIsNothing) {
  EXPECT_EQ(LatencyHistogram().Percentile(50), 0);
}

}  // namespace
}  // namespace heddle::client
