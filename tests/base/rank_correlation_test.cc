#include "base/rank_correlation.h"

#include <gtest/gtest.h>

namespace heddle {
namespace {

double Correlation(const std::vector<double>& a, const std::vector<double>& b) {
  return RankCorrelation(RanksOf(a), RanksOf(b)).value_or(-2);
}

TEST(RankCorrelationTest, EqualValuesShareTheirRanks) {
  EXPECT_EQ(RanksOf({3, 1, 3, 7}), (std::vector<double>{1.5, 0, 1.5, 3}));
  EXPECT_TRUE(RanksOf({}).empty());
}

TEST(RankCorrelationTest, OnlyTheOrderCounts) {
  EXPECT_DOUBLE_EQ(Correlation({1, 2, 3, 4}, {1, 10, 11, 1000}), 1);
  EXPECT_DOUBLE_EQ(Correlation({1, 2, 3, 4}, {5, 4, 3, 2}), -1);
  // 1 - 6 (1 + 1) / (4 (16 - 1))
  EXPECT_DOUBLE_EQ(Correlation({1, 2, 3, 4}, {1, 2, 4, 3}), 0.8);
}

TEST(RankCorrelationTest, NothingIsToldOfValuesWithoutAnOrder) {
  EXPECT_FALSE(RankCorrelation(RanksOf({1, 2, 3}), RanksOf({5, 5, 5})).has_value());
  EXPECT_FALSE(RankCorrelation({}, {}).has_value());
}

}  // namespace
}  // namespace heddle
