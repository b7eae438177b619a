#include "base/vocabulary/strategies.h"

#include <gtest/gtest.h>

namespace heddle {
namespace {

TEST(Strategies, EmptyIsTheDefault) {
  EXPECT_EQ(StrategyOrDefault(""), kStrategies[0]);
  EXPECT_EQ(StrategyOrDefault("grid"), "grid");
  EXPECT_TRUE(IsStrategy(StrategyOrDefault("")));
  EXPECT_FALSE(IsStrategy("magic"));
}

TEST(Strategies, TheListNamesEachForPeople) {
  const std::string list = StrategyList();
  EXPECT_TRUE(list.starts_with("annealing, ")) << list;
  EXPECT_TRUE(list.ends_with(" or random")) << list;
}

}  // namespace
}  // namespace heddle
