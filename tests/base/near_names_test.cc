#include "base/near_names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace heddle {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(NearNames, DistanceIsLevenshteins) {
  EXPECT_EQ(EditDistance("", ""), 0u);
  EXPECT_EQ(EditDistance("fetch", "fetch"), 0u);
  EXPECT_EQ(EditDistance("fetc", "fetch"), 1u);
  EXPECT_EQ(EditDistance("kitten", "sitting"), 3u);
  EXPECT_EQ(EditDistance("", "abc"), 3u);
}

TEST(NearNames, TheNearestComeFirst) {
  EXPECT_THAT(NearNames("fetc", {"show", "watch", "fetch"}, 2), ElementsAre("fetch", "watch"));
  EXPECT_THAT(NearNames("x", {}, 2), IsEmpty());
}

}  // namespace
}  // namespace heddle
