#include "base/pauses.h"

#include <gtest/gtest.h>

namespace heddle {
namespace {

TEST(PausesTest, OnlyWhatIsLongerThanUsualIsAPause) {
  Pauses pauses(absl::Seconds(1));
  absl::Time now = absl::UnixEpoch();
  EXPECT_EQ(pauses.Look(now), absl::ZeroDuration()) << "the first look";
  EXPECT_EQ(pauses.Look(now += absl::Seconds(1)), absl::ZeroDuration());
  EXPECT_EQ(pauses.Look(now += absl::Seconds(7)), absl::Seconds(6));
  EXPECT_EQ(pauses.Look(now), absl::ZeroDuration()) << "each pause once";
}

TEST(PausesTest, NothingIsLongerThanForEver) {
  Pauses pauses(absl::InfiniteDuration());
  EXPECT_EQ(pauses.Look(absl::UnixEpoch()), absl::ZeroDuration());
  EXPECT_EQ(pauses.Look(absl::UnixEpoch() + absl::Hours(1)), absl::ZeroDuration());
}

}  // namespace
}  // namespace heddle
