#include "base/near_names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace heddle {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(NearNames, DistanceCountsEditsAndSwaps) {
  EXPECT_EQ(EditDistance("", ""), 0u);
  EXPECT_EQ(EditDistance("fetch", "fetch"), 0u);
  EXPECT_EQ(EditDistance("fetc", "fetch"), 1u);
  EXPECT_EQ(EditDistance("kitten", "sitting"), 3u);
  EXPECT_EQ(EditDistance("", "abc"), 3u);
  EXPECT_EQ(EditDistance("trails", "trials"), 1u) << "neighbours that swapped";
  EXPECT_EQ(EditDistance("ab", "ba"), 1u);
}

TEST(NearNames, OnlyWhatIsNearIsSuggested) {
  const std::vector<std::string> known = {"zoo", "report", "show", "trials", "config"};
  EXPECT_EQ(NearName("shwo", known), "show");
  EXPECT_EQ(NearName("trails", known), "trials");
  EXPECT_EQ(NearName("confi", known), "config");
  EXPECT_EQ(NearName("foo", known), "") << "one of three letters differs";
  EXPECT_EQ(NearName("export", known), "");
  EXPECT_EQ(NearName("x", {}), "");
}

TEST(NearNames, TheNearestComeFirst) {
  EXPECT_THAT(NearNames("fetc", {"show", "watch", "fetch"}, 2), ElementsAre("fetch", "watch"));
  EXPECT_THAT(NearNames("x", {}, 2), IsEmpty());
}

}  // namespace
}  // namespace heddle
