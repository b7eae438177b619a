#include "views/accuracy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace heddle::views {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

TEST(RankAccuracy, APerfectOrderHasCorrelationOne) {
  const std::vector<BatchAccuracy> found =
      RankAccuracy({{"j1", 8, 3, 100}, {"j1", 8, 2, 200}, {"j1", 8, 1, 300}, {"j1", 8, 0, 0}});
  ASSERT_THAT(found, SizeIs(1));
  EXPECT_DOUBLE_EQ(*found[0].correlation, 1);
  EXPECT_DOUBLE_EQ(*found[0].pairs, 1);
  EXPECT_EQ(found[0].rank_of_best, 1);
  ASSERT_THAT(found[0].places, SizeIs(4));
  EXPECT_DOUBLE_EQ(found[0].places[0].predicted, 1);
  EXPECT_DOUBLE_EQ(found[0].places[0].measured, 1);
  EXPECT_DOUBLE_EQ(found[0].places[1].measured, 2.0 / 3);
  EXPECT_TRUE(found[0].places[3].failed);
  EXPECT_DOUBLE_EQ(found[0].places[3].measured, 0);
}

TEST(RankAccuracy, AWrongOrderHasCorrelationMinusOne) {
  const auto found = RankAccuracy({{"j1", 8, 1, 100}, {"j1", 8, 2, 200}, {"j1", 8, 3, 300}});
  EXPECT_DOUBLE_EQ(*found[0].correlation, -1);
  EXPECT_EQ(found[0].rank_of_best, 3);
}

// The value of Spearman's correlation with ties, worked out by hand: predicted ranks 0.5, 0.5, 2, 3 and
// measured ranks 1, 0, 2, 3 have covariance 4.5, and variances 4.5 and 5.
TEST(RankAccuracy, TiesShareTheirRank) {
  const auto found =
      RankAccuracy({{"j1", 8, 1, 300}, {"j1", 8, 1, 400}, {"j1", 8, 2, 200}, {"j1", 8, 3, 100}});
  EXPECT_NEAR(*found[0].correlation, 4.5 / std::sqrt(4.5 * 5), 1e-12);
}

TEST(RankAccuracy, WhatCannotBeRankedHasNoCorrelation) {
  EXPECT_THAT(RankAccuracy({}), IsEmpty());
  const auto one = RankAccuracy({{"j1", 8, 1, 300}});
  EXPECT_FALSE(one[0].correlation.has_value());
  EXPECT_THAT(one[0].places, IsEmpty());
  EXPECT_FALSE(RankAccuracy({{"j1", 8, 1, 300}, {"j1", 8, 1, 400}})[0].correlation.has_value());
  EXPECT_FALSE(RankAccuracy({{"j1", 8, 1, 300}, {"j1", 8, 2, 300}})[0].correlation.has_value());
}

TEST(RankAccuracy, OnlyPredictionsOfOneModelAreCompared) {
  const std::vector<PredictedTrial> trials = {{"j1", 8, 1, 200},  {"j1", 8, 2, 100},
                                              {"j2", 8, 9, 50},   {"j1", 16, -1, 10},
                                              {"j1", 16, -2, 20}, {"j1", 16, -3, 5}};
  const auto found = RankAccuracy(trials);
  ASSERT_THAT(found, SizeIs(3));
  EXPECT_EQ(found[1].job, "j2");
  EXPECT_DOUBLE_EQ(*found[0].correlation, 1);
  EXPECT_DOUBLE_EQ(*found[2].correlation, -0.5);
  EXPECT_DOUBLE_EQ(*MeanOf(found, &BatchAccuracy::correlation), (2 * 1 + 3 * -0.5) / 5);
  EXPECT_FALSE(MeanOf({}, &BatchAccuracy::pairs).has_value());
}

}  // namespace
}  // namespace heddle::views
