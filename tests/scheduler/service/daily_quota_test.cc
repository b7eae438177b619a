// What a tenant may take within a day, and that it comes back.
#include "scheduler/service/storage/daily_quota.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace heddle::scheduler {
namespace {

using ::testing::HasSubstr;

const absl::Time kStart = absl::FromUnixSeconds(1'000'000);

TEST(DailyQuotaTest, WhatWasTakenComesBackOverADay) {
  DailyQuota quota(24);
  EXPECT_EQ(quota.Wait("a", 24, kStart), absl::ZeroDuration());
  quota.Take("a", 24, kStart);
  EXPECT_EQ(quota.Wait("a", 1, kStart), absl::Hours(1));
  EXPECT_EQ(quota.Wait("a", 3, kStart + absl::Hours(1)), absl::Hours(2));
  EXPECT_EQ(quota.Wait("a", 1, kStart + absl::Hours(1)), absl::ZeroDuration());
  quota.Take("a", 1, kStart + absl::Hours(1));
  EXPECT_EQ(quota.Wait("a", 1, kStart + absl::Hours(1)), absl::Hours(1));
  EXPECT_EQ(quota.Wait("a", 24, kStart + absl::Hours(25)), absl::ZeroDuration());
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
            "callers without a tenant did 10 things, as much as one may within a day; try again after "
            "2h24m");
  EXPECT_THAT(std::string(quota.Check("a", 1, kStart, "").message()), HasSubstr("tenant a"));
}

TEST(DailyQuotaTest, MoreThanADaysWorthIsTakenWhenNothingElseWas) {
  DailyQuota quota(10);
  EXPECT_TRUE(quota.Check("a", 100, kStart, "").ok());
  quota.Take("a", 100, kStart);
  EXPECT_EQ(quota.Wait("a", 100, kStart), absl::Hours(240)) << "all of it has to come back";
}

}  // namespace
}  // namespace heddle::scheduler
