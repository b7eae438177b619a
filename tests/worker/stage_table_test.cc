#include "worker/supervisor/stage_table.h"

#include <gtest/gtest.h>

#include <thread>

#include "absl/time/clock.h"
#include "base/clock.h"

namespace heddle::worker {
namespace {

v1::StageStart Start(const std::string& slot, const std::string& lease, uint64_t token) {
  v1::StageStart start;
  start.set_slot(slot);
  start.set_lease_id(lease);
  start.set_fencing_token(token);
  return start;
}

class StageTableTest : public ::testing::Test {
 protected:
  StageTableTest()
      : table_({{"cpu0", false, {0}}, {"profile1", true, {1}}, {"profile0-1", true, {0, 1}}}) {}

  void Grant(std::vector<heddle::worker::Grant> grants) {
    table_.SetGrants(std::move(grants), MonotonicNow());
  }
  heddle::worker::Grant Of(const std::string& lease, const std::string& slot, uint64_t token) {
    return {lease, slot, token, MonotonicNow() + absl::Hours(1)};
  }
  absl::StatusCode Enter(const v1::StageStart& start, StageSession& session) {
    return table_.Enter(start, &session, absl::Milliseconds(20)).code();
  }

  StageTable table_;
  StageSession a_, b_;
};

TEST_F(StageTableTest, OnlyExactlyWhatWasGranted) {
  Grant({Of("L5", "cpu0", 5)});
  EXPECT_EQ(Enter(Start("cpu0", "L4", 5), a_), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(Enter(Start("cpu0", "L5", 6), a_), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(Enter(Start("profile1", "L5", 5), a_), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(Enter(Start("gpu0", "L5", 5), a_), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Enter(Start("cpu0", "L5", 5), a_), absl::StatusCode::kOk);
  EXPECT_EQ(table_.RunningLeases(), std::vector<std::string>{"L5"});
}

TEST_F(StageTableTest, OneStagePerSlotAndPerCore) {
  Grant({Of("L5", "cpu0", 5), Of("L6", "profile1", 6), Of("L7", "profile0-1", 7)});
  EXPECT_EQ(Enter(Start("cpu0", "L5", 5), a_), absl::StatusCode::kOk);
  EXPECT_EQ(Enter(Start("cpu0", "L5", 5), b_), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(Enter(Start("profile0-1", "L7", 7), b_), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(Enter(Start("profile1", "L6", 6), b_), absl::StatusCode::kOk);
  EXPECT_FALSE(a_.stopped()) << "its lease is valid";
}

TEST_F(StageTableTest, LostLeasesStopTheirStages) {
  Grant({Of("L5", "cpu0", 5), Of("L6", "profile1", 6)});
  ASSERT_EQ(Enter(Start("cpu0", "L5", 5), a_), absl::StatusCode::kOk);
  ASSERT_EQ(Enter(Start("profile1", "L6", 6), b_), absl::StatusCode::kOk);
  Grant({Of("L6", "profile1", 6)});
  EXPECT_TRUE(a_.stopped());
  EXPECT_NE(a_.reason().find("L5"), std::string::npos);
  EXPECT_FALSE(b_.stopped());
}

TEST_F(StageTableTest, LeasesExpireByTheLocalClock) {
  const absl::Time now = MonotonicNow();
  table_.SetGrants({{"L5", "cpu0", 5, now + absl::Seconds(60)}}, now);
  ASSERT_EQ(Enter(Start("cpu0", "L5", 5), a_), absl::StatusCode::kOk);
  table_.StopExpired(now + absl::Seconds(59));
  EXPECT_FALSE(a_.stopped());
  table_.StopExpired(now + absl::Seconds(60));
  EXPECT_TRUE(a_.stopped());
  EXPECT_FALSE(table_.Granted("L5", "cpu0", 5, now + absl::Seconds(60)));
}

TEST_F(StageTableTest, ANewLeaseWaitsForTheStoppedStageToBeGone) {
  Grant({Of("L5", "cpu0", 5)});
  ASSERT_EQ(Enter(Start("cpu0", "L5", 5), a_), absl::StatusCode::kOk);
  Grant({Of("L8", "profile0-1", 8)});
  EXPECT_TRUE(a_.stopped());
  std::thread leaving([this] {
    absl::SleepFor(absl::Milliseconds(50));
    table_.Leave("cpu0");
  });
  EXPECT_TRUE(table_.Enter(Start("profile0-1", "L8", 8), &b_, absl::Seconds(30)).ok());
  leaving.join();
}

TEST_F(StageTableTest, OldTokensNeverComeBack) {
  Grant({Of("L9", "cpu0", 9)});
  ASSERT_EQ(Enter(Start("cpu0", "L9", 9), a_), absl::StatusCode::kOk);
  table_.Leave("cpu0");
  // A tracker that lost its state and counts from the beginning must not be obeyed.
  Grant({Of("L3", "cpu0", 3)});
  EXPECT_EQ(Enter(Start("cpu0", "L3", 3), a_), absl::StatusCode::kFailedPrecondition);
}

TEST_F(StageTableTest, ClosedTakesNothingMore) {
  Grant({Of("L5", "cpu0", 5), Of("L6", "profile1", 6)});
  ASSERT_EQ(Enter(Start("cpu0", "L5", 5), a_), absl::StatusCode::kOk);
  table_.Close();
  EXPECT_EQ(Enter(Start("profile1", "L6", 6), b_), absl::StatusCode::kUnavailable);
  EXPECT_FALSE(table_.WaitEmpty(absl::Milliseconds(10)));
  table_.StopAll("bye");
  EXPECT_EQ(a_.reason(), "bye");
  table_.Leave("cpu0");
  EXPECT_TRUE(table_.WaitEmpty(absl::Milliseconds(10)));
}

TEST(StageTimes, TheMedianOfThoseThatTookLongerDecides) {
  StageTimes times;
  const auto can_end = [&times](double age, double left) {
    return times.CanEnd(v1::STAGE_BUILD, absl::Seconds(age), absl::Seconds(left));
  };
  EXPECT_TRUE(can_end(0, 1)) << "nothing is known";
  for (const int seconds : {10, 20, 30}) times.Note(v1::STAGE_BUILD, absl::Seconds(seconds));
  EXPECT_TRUE(can_end(0, 20));
  EXPECT_FALSE(can_end(0, 19));
  EXPECT_TRUE(can_end(12, 13)) << "25 s, since it has already run for longer than 10 s";
  EXPECT_FALSE(can_end(12, 12));
  EXPECT_TRUE(can_end(31, 1)) << "none took so long";
  EXPECT_TRUE(times.CanEnd(v1::STAGE_IMPORT, absl::ZeroDuration(), absl::Seconds(1)));
  for (int i = 0; i < 64; ++i) times.Note(v1::STAGE_BUILD, absl::Seconds(1));
  EXPECT_TRUE(can_end(0, 1)) << "older ones are forgotten";
}

TEST_F(StageTableTest, WhatWouldEndTooLateIsStopped) {
  const auto of_kind = [](const std::string& slot, const std::string& lease, uint64_t token,
                          v1::StageKind kind) {
    v1::StageStart start = Start(slot, lease, token);
    start.set_kind(kind);
    return start;
  };
  Grant({Of("L5", "cpu0", 5), Of("L6", "profile1", 6)});
  const v1::StageStart update = of_kind("cpu0", "L5", 5, v1::STAGE_UPDATE);
  ASSERT_EQ(Enter(update, a_), absl::StatusCode::kOk);
  absl::SleepFor(absl::Milliseconds(20));
  table_.Leave("cpu0");  // an update takes 20 ms
  ASSERT_EQ(Enter(update, a_), absl::StatusCode::kOk);
  ASSERT_EQ(Enter(of_kind("profile1", "L6", 6, v1::STAGE_PROFILE), b_), absl::StatusCode::kOk);
  table_.StopLate(absl::Minutes(10), MonotonicNow(), "late");
  EXPECT_FALSE(a_.stopped());
  table_.StopLate(absl::ZeroDuration(), MonotonicNow() - absl::Hours(1), "late");
  EXPECT_EQ(a_.reason(), "late");
  EXPECT_FALSE(b_.stopped()) << "nothing is known of profile stages";
}

}  // namespace
}  // namespace heddle::worker
