// How a scheduler keeps the leadership, and that it ends before another may have it.
#include "scheduler/service/leadership.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "base/clock.h"
#include "scheduler/store/memory_record_store.h"
#include "tests/scheduler/service/gated_store.h"

namespace heddle::scheduler {
namespace {

using ::testing::HasSubstr;

constexpr absl::Duration kLeadershipLimit =
    absl::Seconds(30);  // for a machine that does a lot besides
constexpr LeadershipTimes kQuick = {.lease = absl::Milliseconds(1200),
                                    .renew_every = absl::Milliseconds(100),
                                    .margin = absl::Milliseconds(400),
                                    .give_up = absl::Seconds(5)};

class LeadershipTest : public ::testing::Test {
 protected:
  std::unique_ptr<Leadership> Take(const std::string& name, Leader* leader) {
    Leadership::Options options;
    options.claim.scheduler = name;
    options.claim.address = name + ":1";
    options.times = kQuick;
    options.lost = [this](const std::string& reason) {
      reason_ = reason;
      lost_at_ = MonotonicNow();
      remaining_ = store_.LeaderOf(kDefaultPool)->remaining;
      lost_.Notify();
    };
    auto taken = Leadership::Take(&store_, options, leader);
    EXPECT_TRUE(taken.ok()) << taken.status();
    return taken.ok() ? *std::move(taken) : nullptr;
  }
  Leader Now() { return *store_.LeaderOf(kDefaultPool); }
  absl::Status Write() { return store_.Apply({Batch{PutMachine{"key", "machine"}}}).status(); }

  GatedStore store_{MakeMemoryRecordStore()};
  Leader leader_;
  absl::Notification lost_;
  std::string reason_;  // valid once `lost_` is notified, as are the next two
  absl::Time lost_at_;
  absl::Duration remaining_;
};

// What docs/operating.md promises when a leader hangs, as far as these times decide it; loading the jobs comes on top.
TEST(LeadershipTimesTest, AnotherLeadsSoonAndNoneWithoutNeed) {
  constexpr absl::Duration kHalf = absl::Seconds(5), kLongest = absl::Seconds(15);
  constexpr absl::Duration kLoading = absl::Milliseconds(500);  // few jobs, a busy machine
  constexpr absl::Duration kTransaction = absl::Seconds(1);     // StoreWriter keeps below it
  const LeadershipTimes times;
  EXPECT_LE(times.lease + times.ask_every + kLoading, kHalf);
  EXPECT_LE(times.lease + times.ask_every + absl::Seconds(10), kLongest) << "10 s of loading";
  EXPECT_GE(8 * times.margin, times.lease) << "clocks may differ by one part in eight";
  // A renewal waits for one transaction, and takes as long as another. It may have failed at once before.
  EXPECT_GE(times.lease - times.margin - times.renew_every, 2 * kTransaction + times.renew_again);
  EXPECT_GE(times.give_up, 10 * times.lease);
}

TEST_F(LeadershipTest, IsKeptByRenewals) {
  const auto first = Take("a", &leader_);
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(leader_.epoch, 1);
  absl::SleepFor(2 * kQuick.lease);
  EXPECT_TRUE(first->Holds());
  EXPECT_GT(Now().remaining, absl::ZeroDuration());
  EXPECT_EQ(Take("b", &leader_), nullptr);
  EXPECT_EQ(leader_.scheduler, "a");
  EXPECT_EQ(leader_.address, "a:1");
  EXPECT_TRUE(Write().ok());
  EXPECT_FALSE(lost_.HasBeenNotified());
}

TEST_F(LeadershipTest, IsLetGoAtTheEnd) {
  Take("a", &leader_).reset();
  const auto second = Take("b", &leader_);
  ASSERT_NE(second, nullptr);
  EXPECT_EQ(leader_.epoch, 2);
  EXPECT_FALSE(lost_.HasBeenNotified());
}

TEST_F(LeadershipTest, TellsWhereTheLeaderIsOnceItKnows) {
  const auto first = Take("a", &leader_);
  first->SetAddress("a:7777");
  const absl::Time limit = MonotonicNow() + kLeadershipLimit;
  while (Now().address != "a:7777" && MonotonicNow() < limit) absl::SleepFor(absl::Milliseconds(5));
  EXPECT_EQ(Now().address, "a:7777");
}

// By its own clock it stops to decide while the store still counts it as the leader. It goes on if nobody took over.
TEST_F(LeadershipTest, WhoCannotRenewDecidesNothingUntilTheStoreAnswers) {
  const auto first = Take("a", &leader_);
  store_.SetLeadProblem(absl::UnavailableError("no connection"));
  const absl::Time limit = MonotonicNow() + kLeadershipLimit;
  while (first->Holds() && MonotonicNow() < limit) absl::SleepFor(absl::Milliseconds(5));
  EXPECT_GT(Now().remaining, absl::ZeroDuration()) << "nobody else could lead yet";
  EXPECT_FALSE(first->Holds());
  absl::SleepFor(kQuick.lease);
  EXPECT_FALSE(lost_.HasBeenNotified());
  store_.SetLeadProblem(absl::OkStatus());
  while (!first->Holds() && MonotonicNow() < limit) absl::SleepFor(absl::Milliseconds(5));
  EXPECT_TRUE(first->Holds());
  EXPECT_EQ(Now().epoch, 1);
}

TEST_F(LeadershipTest, WhoCannotRenewForLongEnds) {
  const auto first = Take("a", &leader_);
  store_.SetLeadProblem(absl::UnavailableError("no connection"));
  ASSERT_TRUE(lost_.WaitForNotificationWithTimeout(kLeadershipLimit));
  EXPECT_FALSE(first->Holds());
  EXPECT_THAT(reason_, HasSubstr("was not renewed for 5.8s (no connection)"));
}

// It does not wait for the end of its lease, nor for the minute that a leader without an answer has.
TEST_F(LeadershipTest, ANewerProgramEndsItAtOnce) {
  const auto first = Take("a", &leader_);
  store_.SetLeadProblem(absl::FailedPreconditionError("its tables are of version 99 by now"));
  ASSERT_TRUE(lost_.WaitForNotificationWithTimeout(kLeadershipLimit));
  EXPECT_THAT(reason_, HasSubstr("is lost: its tables are of version 99"));
  EXPECT_FALSE(first->Holds());
}

// An answer that the store takes no writes may take nearly as long as the lease, as that of a locked file does.
TEST_F(LeadershipTest, ASlowAnswerThatNobodyCanWriteEndsNoLeadership) {
  const auto first = Take("a", &leader_);
  store_.SetLeadProblem(absl::ResourceExhaustedError("the file is locked"),
                        kQuick.lease - kQuick.margin);
  const absl::Time end = MonotonicNow() + 8 * kQuick.lease;
  while (MonotonicNow() < end) absl::SleepFor(absl::Milliseconds(100));
  EXPECT_FALSE(lost_.HasBeenNotified());
  store_.SetLeadProblem(absl::OkStatus());
}

TEST_F(LeadershipTest, AnotherEpochEndsIt) {
  const auto first = Take("a", &leader_);
  LeaderClaim claim;
  claim.scheduler = "b";
  claim.address = "b:1";
  claim.lease = absl::Minutes(1);
  claim.leader_has_ended = true;  // somebody was wrong about it
  ASSERT_EQ(store_.Lead(claim)->epoch, 2);
  EXPECT_TRUE(absl::IsAborted(Write()));
  ASSERT_TRUE(lost_.WaitForNotificationWithTimeout(kLeadershipLimit));
  EXPECT_THAT(reason_, HasSubstr("another scheduler leads since (at b:1"));
  EXPECT_FALSE(first->Holds());
}

// Nobody can take over while nobody can write, and those who only read still want answers.
TEST_F(LeadershipTest, AFullDiskEndsNoLeadership) {
  const auto first = Take("a", &leader_);
  store_.SetLeadProblem(absl::ResourceExhaustedError("the disk is full"));
  EXPECT_FALSE(lost_.WaitForNotificationWithTimeout(2 * kQuick.lease));
  EXPECT_TRUE(first->Holds());
  EXPECT_EQ(Now().remaining, absl::ZeroDuration());
  store_.SetLeadProblem(absl::OkStatus());
  const absl::Time limit = MonotonicNow() + kLeadershipLimit;
  while (Now().remaining == absl::ZeroDuration() && MonotonicNow() < limit)
    absl::SleepFor(absl::Milliseconds(5));
  EXPECT_EQ(Now().epoch, 1);
  EXPECT_TRUE(Write().ok());
}

}  // namespace
}  // namespace heddle::scheduler
