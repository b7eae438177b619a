// Work in disposable children: an item that crashes or hangs fails alone.
#include "bench/common/fork_map.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace heddle::bench {
namespace {

using Result = absl::StatusOr<std::string>;

TEST(ForkMap, GivesResultsInOrderWhateverTheLanes) {
  for (const int children : {1, 2, 3}) {
    // Binary, and larger than a pipe's buffer.
    const auto work = [](int i) -> Result { return std::string(100000 + i, static_cast<char>(i)); };
    const auto results =
        ForkMap(7, std::vector<std::vector<int>>(children), absl::Seconds(20), work);
    ASSERT_EQ(results.size(), 7u);
    for (int i = 0; i < 7; ++i) EXPECT_EQ(*results[i], *work(i)) << i << " of " << children;
  }
}

TEST(ForkMap, NothingToDo) {
  EXPECT_TRUE(ForkMap(0, {{}}, absl::Seconds(1), [](int) -> Result { return ""; }).empty());
}

TEST(ForkMap, FailuresCrashesAndHangsCostThemselvesAlone) {
  const auto work = [](int i) -> Result {
    if (i == 1) std::abort();
    if (i == 2) return absl::NotFoundError("nothing here");
    if (i == 4) pause();
    return absl::StrCat("item ", i);
  };
  const auto results = ForkMap(6, {{}, {}}, absl::Milliseconds(500), work);
  EXPECT_EQ(results[0].value(), "item 0");
  EXPECT_EQ(results[1].status().code(), absl::StatusCode::kAborted);
  EXPECT_EQ(results[2].status(), absl::NotFoundError("nothing here"));
  EXPECT_EQ(results[3].value(), "item 3");
  EXPECT_EQ(results[4].status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(results[5].value(), "item 5");
}

// The last result of a child is kept, and a new child does the next item.
TEST(ForkMap, AChildThatAbortsIsToldAndGone) {
  int calls = 0;
  const auto results = ForkMap(4, {{}}, absl::Seconds(20), [&](int i) -> Result {
    ++calls;
    if (i == 1) return absl::AbortedError("the cause");
    return absl::StrCat(calls);
  });
  EXPECT_EQ(results[0].value(), "1");
  EXPECT_EQ(results[1].status(), absl::AbortedError("the cause"));
  EXPECT_EQ(results[2].value(), "1") << "by a new child";
  EXPECT_EQ(results[3].value(), "2");
}

TEST(ForkMap, WhatIsNotDoneInTimeIsCancelled) {
  const auto work = [](int i) -> Result {
    if (i == 1) pause();
    return absl::StrCat("item ", i);
  };
  for (const Result& result : ForkMap(3, {{}, {}}, absl::Hours(1), work, absl::Now()))
    EXPECT_TRUE(absl::IsCancelled(result.status())) << result.status();
  const auto results =
      ForkMap(4, {{}, {}}, absl::Hours(1), work, absl::Now() + absl::Milliseconds(500));
  EXPECT_EQ(results[0].value(), "item 0");
  EXPECT_TRUE(absl::IsCancelled(results[1].status())) << results[1].status();
  EXPECT_EQ(results[2].value(), "item 2");
  EXPECT_TRUE(absl::IsCancelled(results[3].status())) << results[3].status();
}

TEST(ForkMap, AChildKeepsWhatItsWorkCaptured) {
  int calls = 0;
  const auto results =
      ForkMap(3, {{}}, absl::Seconds(20), [&](int) -> Result { return absl::StrCat(++calls); });
  EXPECT_EQ(results[2].value(), "3");
  EXPECT_EQ(calls, 0) << "the parent does no work itself";
}

}  // namespace
}  // namespace heddle::bench
