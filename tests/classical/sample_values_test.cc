// The values that a forest is timed with reach both sides of its nodes.
#include "compiler/classical/sample_values.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "compiler/classical/forest.h"

namespace heddle::classical {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr float kInf = std::numeric_limits<float>::infinity();

// Of one feature and a tree of one node for each threshold.
Forest Stumps(const std::vector<float>& thresholds) {
  Forest forest;
  forest.features = 1;
  forest.base = {0};
  ColumnNumbers(forest).Add({.feature = 0, .instead = -kInf});
  for (const float threshold : thresholds)
    forest.trees.push_back({{{0, threshold, ~0, ~1}}, 0, {0, 1}});
  return forest;
}

TEST(SampleValues, LieOnBothSidesOfEveryThreshold) {
  const Forest forest = Stumps({30, 20, 20, 25, kInf});
  ASSERT_TRUE(CheckForest(forest).ok());
  EXPECT_THAT(SampleValues(forest, 100),
              ElementsAre(ElementsAre(std::nextafter(20.0F, 0.0F), 20, 25, 30)));
}

// Of a thousand thresholds, about half of the nodes are reached from either side by an average row.
TEST(SampleValues, AreQuantilesOfManyThresholds) {
  std::vector<float> thresholds;
  for (int i = 0; i < 1000; ++i) thresholds.push_back(1000 + static_cast<float>(i * i));
  const Forest forest = Stumps(thresholds);
  for (const size_t most : {2, 9, 32}) {
    const std::vector<std::vector<float>> found = SampleValues(forest, most);
    ASSERT_EQ(found.size(), 1u);
    const std::vector<float>& values = found[0];
    EXPECT_EQ(values.size(), most);
    EXPECT_TRUE(std::is_sorted(values.begin(), values.end()));
    double right = 0;
    for (const float threshold : thresholds) {
      for (const float value : values) right += value >= threshold;
    }
    right /= static_cast<double>(thresholds.size() * values.size());
    EXPECT_NEAR(right, 0.5, 0.6 / static_cast<double>(most)) << most;
  }
}

TEST(SampleValues, KnowCategoriesAndFeaturesThatNobodyAsks) {
  Forest forest;
  forest.features = 3;
  forest.base = {0};
  ColumnNumbers columns(forest);
  const int member = columns.Add({.feature = 2, .kind = Column::Kind::kMember, .members = {3, 8}});
  for (int i = 0; i < 4; ++i) forest.trees.push_back({{{member, 1, ~0, ~1}}, 0, {0, 1}});
  ASSERT_TRUE(CheckForest(forest).ok()) << CheckForest(forest);
  const auto values = SampleValues(forest, 60);
  ASSERT_EQ(values.size(), 3u);
  EXPECT_THAT(values[0], IsEmpty());
  EXPECT_THAT(values[2], ElementsAre(std::nextafter(3.0F, 0.0F), 3, 8));
}

TEST(SampleValues, KeepTheLimit) {
  Forest forest = Stumps({1});
  forest.features = 10;
  EXPECT_THAT(SampleValues(forest, 19), IsEmpty());
  EXPECT_EQ(SampleValues(forest, 20).size(), 10u);
  EXPECT_EQ(SampleValues(forest, 20)[0].size(), 2u);
  const float most = std::numeric_limits<float>::max();
  EXPECT_THAT(SampleValues(Stumps({-most}), 8), ElementsAre(ElementsAre(-most)));
}

}  // namespace
}  // namespace heddle::classical
