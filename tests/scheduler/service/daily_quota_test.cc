// What a tenant may take within a day, and that it comes back.
#include "scheduler/service/storage/daily_quota.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace heddle::scheduler {
namespace {

using ::testing::HasSubstr;

const absl::Time kStart = absl::FromUnixSeconds(1'000'000);

double Hours(absl::Duration duration) { return absl::ToDoubleHours(duration); }

TEST(DailyQuotaTest, WhatWasTakenComesBackOverADay) {
  constexpr double kRounding = 1e-9;
  DailyQuota quota(24);
  const absl::Time later = kStart + absl::Hours(1);
  EXPECT_EQ(quota.Wait("a", 24, kStart), absl::ZeroDuration());
  quota.Take("a", 24, kStart);
  EXPECT_NEAR(Hours(quota.Wait("a", 1, kStart)), 1, kRounding);
  EXPECT_NEAR(Hours(quota.Wait("a", 3, later)), 2, kRounding);
  EXPECT_NEAR(Hours(quota.Wait("a", 1, later)), 0, kRounding);
  quota.Take("a", 1, later);
  EXPECT_NEAR(Hours(quota.Wait("a", 1, later)), 1, kRounding);
  EXPECT_EQ(quota.Wait("a", 24, later + absl::Hours(25)), absl::ZeroDuration());
}

TEST(DailyQuotaTest, EachTenantHasItsOwn) {
  DailyQuota quota(10);
  quota.Take("a", 10, kStart);
  EXPECT_TRUE(quota.Check("b", 10, kStart, "").ok());
  EXPECT_TRUE(quota.Check("", 10, kStart, "").ok());
  quota.Take("", 10, kStart);
  const absl::Status refused = quota.Check("", 1, kStart, "did 10 things");
  EXPECT_TRUE(absl::IsResourceExhausted(refused));
  EXPECT_EQ(refused.message(),
            "callers without a tenant did 10 things, as much as one may within a day; try again "
            "after 2h24m");
  EXPECT_THAT(std::string(quota.Check("a", 1, kStart, "").message()), HasSubstr("tenant a"));
}

TEST(DailyQuotaTest, ZeroIsNoLimit) {
  DailyQuota quota(0);
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(quota.Check("a", 1'000'000, kStart, "").ok());
    quota.Take("a", 1'000'000, kStart);
  }
}

TEST(DailyQuotaTest, MoreThanADaysWorthIsTakenWhenNothingElseWas) {
  DailyQuota quota(10);
  EXPECT_TRUE(quota.Check("a", 100, kStart, "").ok());
  quota.Take("a", 100, kStart);
  EXPECT_NEAR(Hours(quota.Wait("a", 100, kStart)), 240, 1e-6) << "all of it has to come back";
}

}  // namespace
}  // namespace heddle::scheduler
