// Who asks for the comparison of the same devices shares one read of the store, and nobody waits
// for another pair.
#include "scheduler/service/reads/device_comparisons.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"

namespace heddle::scheduler {
namespace {

using ::testing::HasSubstr;
using Table = PageSource::DeviceTable;

// A read that waits longer than this would wait for ever.
constexpr absl::Duration kForEver = absl::Minutes(2);

class DeviceComparisonsTest : public ::testing::Test {
 protected:
  ~DeviceComparisonsTest() override {
    if (!go_on_.HasBeenNotified()) go_on_.Notify();
    for (std::thread& thread : threads_) thread.join();
  }

  // A table that names its first device. Reads of "slow.." wait until the test lets them go on.
  DeviceComparisons::Answer Read(const std::string& a, const std::string&) {
    ++reads_;
    if (a.starts_with("slow")) {
      EXPECT_TRUE(go_on_.WaitForNotificationWithTimeout(kForEver)) << "the test waits for a read";
    }
    if (a == "broken") return absl::UnavailableError("the store is away");
    auto table = std::make_shared<Table>();
    if (a != "new") table->pairs.emplace_back().name.key = a;
    return std::shared_ptr<const Table>(std::move(table));
  }
  std::string KeyOf(const DeviceComparisons::Answer& answer) {
    EXPECT_TRUE(answer.ok()) << answer.status();
    return answer.ok() && !(*answer)->pairs.empty() ? (*answer)->pairs.front().name.key : "";
  }
  // Asks on a thread of its own.
  void Ask(const std::string& a, const std::string& b) {
    threads_.emplace_back([this, a, b] {
      EXPECT_EQ(KeyOf(comparisons_.Find(a, b)), a);
      ++answered_;
    });
  }
  template <typename Condition>
  void WaitUntil(const Condition& condition) {
    const absl::Time limit = absl::Now() + kForEver;
    while (!condition() && absl::Now() < limit) absl::SleepFor(absl::Milliseconds(1));
    ASSERT_TRUE(condition());
  }

  std::atomic<int> reads_{0}, answered_{0};
  std::atomic<int64_t> now_s_{0};
  absl::Notification go_on_;
  DeviceComparisons comparisons_{
      [this](const std::string& a, const std::string& b) { return Read(a, b); },
      [this] { return absl::FromUnixSeconds(now_s_); }};
  std::vector<std::thread> threads_;
};

TEST_F(DeviceComparisonsTest, EqualQuestionsShareOneRead) {
  for (int i = 0; i < 5; ++i) Ask("slow", "b");
  WaitUntil([&] { return comparisons_.waiting() == 4; });
  now_s_ = 1000;  // however long it takes
  EXPECT_EQ(reads_, 1);
  EXPECT_EQ(answered_, 0);
  go_on_.Notify();
  WaitUntil([&] { return answered_ == 5; });
  EXPECT_EQ(reads_, 1);
  EXPECT_EQ(comparisons_.waiting(), 0u);
}

TEST_F(DeviceComparisonsTest, OtherPairsDoNotWait) {
  EXPECT_EQ(KeyOf(comparisons_.Find("kept", "b")), "kept");
  Ask("slow", "b");
  WaitUntil([&] { return reads_ == 2; });
  EXPECT_EQ(KeyOf(comparisons_.Find("kept", "b")), "kept");
  EXPECT_EQ(reads_, 2) << "it is kept";
  EXPECT_EQ(KeyOf(comparisons_.Find("a", "slow")), "a");
  EXPECT_EQ(KeyOf(comparisons_.Find("b", "b")), "b");
  EXPECT_EQ(reads_, 4);
  EXPECT_EQ(answered_, 0);
}

TEST_F(DeviceComparisonsTest, TablesAreKeptForHalfAMinute) {
  const auto first = comparisons_.Find("a", "b");
  now_s_ = 30;
  EXPECT_EQ(*comparisons_.Find("a", "b"), *first);
  EXPECT_EQ(reads_, 1);
  now_s_ = 31;
  EXPECT_NE(*comparisons_.Find("a", "b"), *first);
  EXPECT_EQ(reads_, 2);
  EXPECT_EQ((*first)->pairs.size(), 1u) << "who has it keeps it";
}

TEST_F(DeviceComparisonsTest, ErrorsAndNothingAreNotKept) {
  for (int i = 1; i <= 2; ++i) {
    EXPECT_TRUE(absl::IsUnavailable(comparisons_.Find("broken", "b").status()));
    EXPECT_EQ(reads_, 2 * i - 1);
    EXPECT_EQ(KeyOf(comparisons_.Find("new", "b")), "");
    EXPECT_EQ(reads_, 2 * i);
  }
}

TEST_F(DeviceComparisonsTest, TheOldestTableGoes) {
  for (int i = 0; i < 5; ++i) {
    now_s_ = i;
    EXPECT_EQ(KeyOf(comparisons_.Find(std::to_string(9 - i), "b")), std::to_string(9 - i));
  }
  for (int i = 1; i < 5; ++i) (void)comparisons_.Find(std::to_string(9 - i), "b");
  EXPECT_EQ(reads_, 5);
  (void)comparisons_.Find("9", "b");
  EXPECT_EQ(reads_, 6);
}

TEST_F(DeviceComparisonsTest, ReadsAreBounded) {
  (void)comparisons_.Find("kept", "b");
  for (const char* slow : {"slow 1", "slow 2", "slow 3", "slow 4"}) Ask(slow, "b");
  WaitUntil([&] { return reads_ == 5; });
  const auto refused = comparisons_.Find("a", "b");
  EXPECT_TRUE(absl::IsResourceExhausted(refused.status())) << refused.status();
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("ask again in a few seconds"));
  EXPECT_EQ(KeyOf(comparisons_.Find("kept", "b")), "kept");
  go_on_.Notify();
  WaitUntil([&] { return answered_ == 4; });
  EXPECT_EQ(KeyOf(comparisons_.Find("a", "b")), "a");
  EXPECT_EQ(reads_, 6);
}

}  // namespace
}  // namespace heddle::scheduler
