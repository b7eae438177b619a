// Quantiles and medians by their definitions, over random values.
#include "base/quantiles.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

namespace heddle {
namespace {

// 1 to 300 whole numbers, many of them equal, in any order.
std::vector<double> Draw(std::mt19937_64& rng) {
  std::vector<double> values(1 + rng() % 300);
  const uint64_t different = 1 + rng() % 100;
  for (double& value : values) value = static_cast<double>(rng() % different) - 20;
  return values;
}

int64_t CountBelow(const std::vector<double>& values, double limit) {
  return std::count_if(values.begin(), values.end(), [&](double v) { return v < limit; });
}
int64_t CountUpTo(const std::vector<double>& values, double limit) {
  return std::count_if(values.begin(), values.end(), [&](double v) { return v <= limit; });
}

// In whole numbers, so that nothing is rounded here.
TEST(Quantiles, AQuantileIsTheLeastValueThatTheShareDoesNotExceed) {
  std::mt19937_64 rng(1);
  for (int turn = 0; turn < 300; ++turn) {
    const std::vector<double> values = Draw(rng);
    std::vector<double> sorted = values;
    std::sort(sorted.begin(), sorted.end());
    const auto n = static_cast<int64_t>(values.size());
    for (int64_t thousandths = 0; thousandths <= 1000; ++thousandths) {
      const double share = static_cast<double>(thousandths) / 1000;
      const double quantile = QuantileOfSorted(sorted, share);
      ASSERT_TRUE(std::binary_search(sorted.begin(), sorted.end(), quantile));
      ASSERT_GE(1000 * CountUpTo(sorted, quantile), thousandths * n) << share << " of " << n;
      if (thousandths == 0)
        ASSERT_EQ(quantile, sorted.front());
      else
        ASSERT_LT(1000 * CountBelow(sorted, quantile), thousandths * n) << share << " of " << n;
    }
    const double share = static_cast<double>(rng() % 1001) / 1000;
    EXPECT_EQ(Quantile(values, share), QuantileOfSorted(sorted, share)) << "in any order";
    EXPECT_EQ(Quantile(values, 1), sorted.back());
  }
}

// Of each count up to a thousand, the shares that name a value exactly.
TEST(Quantiles, RoundingDoesNotChangeARank) {
  for (int64_t count = 1; count <= 1000; ++count) {
    for (int64_t rank = 1; rank <= count; ++rank) {
      const double share = static_cast<double>(rank) / static_cast<double>(count);
      ASSERT_EQ(NearestRank(count, share), rank) << count;
      const double percent = 100 * share;
      ASSERT_EQ(NearestRank(count, percent / 100), rank) << count;
    }
  }
  EXPECT_EQ(NearestRank(100, 0.07), 7);
  EXPECT_EQ(NearestRank(int64_t{1} << 40, 1), int64_t{1} << 40);
}

TEST(Quantiles, TheMedianHasAsManyValuesBelowAsAbove) {
  std::mt19937_64 rng(2);
  for (int turn = 0; turn < 1000; ++turn) {
    const std::vector<double> values = Draw(rng);
    std::vector<double> negative;
    for (const double value : values) negative.push_back(-value);
    const double median = Median(values);
    const auto n = static_cast<int64_t>(values.size());
    ASSERT_LE(2 * CountBelow(values, median), n);
    ASSERT_LE(2 * (n - CountUpTo(values, median)), n);
    ASSERT_EQ(Median(negative), -median);
    if (n % 2 == 1)
      ASSERT_EQ(median, Quantile(values, 0.5));
    else
      ASSERT_EQ(median, (Quantile(values, 0.5) - Quantile(negative, 0.5)) / 2);
  }
}

TEST(Quantiles, SmallOnesByHand) {
  EXPECT_EQ(Median({3, 1, 2}), 2);
  EXPECT_EQ(Median({4, 1, 2, 3}), 2.5);
  const std::vector<int> values = {4, 1, 2, 3};
  EXPECT_EQ(Quantile(values, 0.5), 2);
  EXPECT_EQ(Quantile(values, 0.51), 3);
  EXPECT_EQ(Quantile(values, 0.99), 4);
}

TEST(Quantiles, OfNoValuesTheyAreZero) {
  EXPECT_EQ(Median({}), 0);
  EXPECT_EQ(Quantile(std::vector<int>(), 0.5), 0);
  EXPECT_EQ(QuantileOfSorted(std::vector<double>(), 1), 0);
  EXPECT_EQ(NearestRank(0, 0.5), 1);
}

}  // namespace
}  // namespace heddle
