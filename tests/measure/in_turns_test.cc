// Timing modules in turns: ratios and their intervals.
#include "compiler/measure/in_turns.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>
#include <random>

namespace heddle {
namespace {

TEST(InTurns, PercentilesAreNearestRank) {
  ModuleTiming timing;
  timing.samples_ns = {4, 1, 3, 2};
  EXPECT_EQ(timing.Median(), 2.5);
  EXPECT_EQ(timing.Percentile(0), 1);
  EXPECT_EQ(timing.Percentile(50), 2);
  EXPECT_EQ(timing.Percentile(99), 4);
}

TEST(InTurns, RatiosArePairedByRound) {
  // The machine is twice as slow in every other round, which touches both alike.
  const Ratio ratio = RatioOf({30, 60, 30, 60}, {20, 40, 20, 40});
  EXPECT_EQ(ratio.median, 1.5);
  EXPECT_EQ(ratio.low, 1.5);
  EXPECT_EQ(ratio.high, 1.5);
  EXPECT_EQ(ratio.rounds, 4);
  EXPECT_EQ(RatioOf({}, {}).rounds, 0);
  EXPECT_EQ(RatioOf({1, 0}, {1, 1}).rounds, 1) << "a time of 0 is none";
}

// From tables of the sign test: with n rounds, the interval leaves out so many values at each end.
TEST(InTurns, TheIntervalEndsAtTheRanksOfTheSignTest) {
  const auto left_out = [](int n) {
    std::vector<double> first, ones(static_cast<size_t>(n), 1);
    for (int i = 1; i <= n; ++i) first.push_back(i);
    const Ratio ratio = RatioOf(first, ones);
    EXPECT_EQ(ratio.low - 1, n - ratio.high);
    return static_cast<int>(ratio.low) - 1;
  };
  EXPECT_EQ(left_out(5), 0);
  EXPECT_EQ(left_out(6), 0);
  EXPECT_EQ(left_out(8), 0);
  EXPECT_EQ(left_out(9), 1);
  EXPECT_EQ(left_out(12), 2);
  EXPECT_EQ(left_out(20), 5);
  EXPECT_EQ(left_out(40), 13);
}

// Over many experiments whose true median is known.
TEST(InTurns, TheIntervalHoldsTheTrueMedianAsOftenAsPromised) {
  std::mt19937_64 rng(7);
  for (const int rounds : {7, 10, 25}) {
    int held = 0;
    constexpr int kExperiments = 4000;
    for (int e = 0; e < kExperiments; ++e) {
      std::lognormal_distribution<double> skewed(std::log(1.1), 0.3);
      std::vector<double> first, ones(static_cast<size_t>(rounds), 1);
      for (int r = 0; r < rounds; ++r) first.push_back(skewed(rng));
      const Ratio ratio = RatioOf(first, ones);
      EXPECT_LE(ratio.low, ratio.median);
      EXPECT_LE(ratio.median, ratio.high);
      held += ratio.low <= 1.1 && 1.1 <= ratio.high;
    }
    // At least 95 %, less three standard deviations of such a count.
    EXPECT_GE(held, kExperiments * 0.95 - 3 * std::sqrt(kExperiments * 0.95 * 0.05)) << rounds;
  }
}

TEST(InTurns, RandomTensorsFollowTheSeed) {
  const runtime::TensorSpec floats{"x", "f32", {3, 5}};
  EXPECT_EQ(RandomTensor(floats, 1).size(), 60u);
  EXPECT_EQ(RandomTensor(floats, 1), RandomTensor(floats, 1));
  EXPECT_NE(RandomTensor(floats, 1), RandomTensor(floats, 2));
  for (const char c : RandomTensor({"i", "i8", {64}}, 3)) EXPECT_LT(static_cast<int>(c), 8);
}

// A forest that asks whether it is warmer than 20 degrees is to be timed with rows of both kinds.
TEST(InTurns, RandomTensorsAreDrawnFromTheSamplesOfTheirColumns) {
  runtime::TensorSpec spec{"x", "f32", {200, 3}};
  spec.samples = {{19, 20, 35}, {}, {-7}};
  const std::string bytes = RandomTensor(spec, 1);
  std::vector<float> x(600);
  ASSERT_EQ(bytes.size(), x.size() * sizeof(float));
  std::memcpy(x.data(), bytes.data(), bytes.size());
  std::map<float, int> first;
  for (size_t row = 0; row < 200; ++row) {
    ++first[x[3 * row]];
    EXPECT_LT(std::abs(x[3 * row + 1]), 1);
    EXPECT_EQ(x[3 * row + 2], -7);
  }
  ASSERT_EQ(first.size(), 3u);
  for (const float value : {19.0F, 20.0F, 35.0F}) EXPECT_GT(first[value], 30) << value;
  EXPECT_NE(RandomTensor(spec, 2), bytes);
}

}  // namespace
}  // namespace heddle
