// Which open page is rendered when, and for whom.
#include "scheduler/page/live_parts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tests/eventually.h"

namespace heddle::scheduler {
namespace {

using testing::Eventually;

LiveParts::Options Quick() {
  LiveParts::Options options;
  options.interval = absl::Milliseconds(20);
  options.refresh = absl::Hours(1);
  options.beat = absl::Hours(1);
  options.share = 0.9;
  return options;
}

TEST(LiveParts, RendersOnceForAllWhoLook) {
  std::atomic<int64_t> changes = 1;
  std::atomic<int> rendered = 0;
  LiveParts live(Quick(), [&] { return changes.load(); });
  std::vector<std::shared_ptr<EventStream>> streams;
  for (int i = 0; i < 100; ++i) {
    streams.push_back(live.Open("a", [&]() -> std::optional<std::string> {
      return absl::StrCat("<p>", ++rendered, "</p>");
    }));
    ASSERT_NE(streams.back(), nullptr);
  }
  EXPECT_TRUE(live.Has("a"));
  EXPECT_FALSE(live.Has("b"));
  ASSERT_TRUE(Eventually([&] { return rendered == 1; }));
  absl::SleepFor(absl::Milliseconds(300));
  EXPECT_EQ(rendered, 1) << "nothing changed";
  ++changes;
  ASSERT_TRUE(Eventually([&] { return rendered == 2; }));
  absl::SleepFor(absl::Milliseconds(300));
  EXPECT_EQ(rendered, 2);
}

TEST(LiveParts, WhatChangesByItselfIsRenderedNowAndThen) {
  LiveParts::Options options = Quick();
  options.refresh = absl::Milliseconds(50);
  std::atomic<int> rendered = 0;
  LiveParts live(options, [] { return int64_t{1}; });
  const auto stream = live.Open("a", [&]() -> std::optional<std::string> {
    ++rendered;
    return "the same";
  });
  EXPECT_TRUE(Eventually([&] { return rendered > 3; }));
  // The same content is not sent again: a stream that nobody reads would be dropped.
  EXPECT_TRUE(Eventually([&] { return rendered > 12; }));
}

TEST(LiveParts, APageOfOneJobIsNotRenderedForOthers) {
  constexpr int kPages = 100;
  std::atomic<int64_t> all = 1;
  std::atomic<int64_t> versions[kPages] = {};
  std::atomic<int> rendered[kPages] = {};
  std::atomic<int> lists = 0;
  LiveParts live(Quick(), [&] { return all.load(); });
  std::vector<std::shared_ptr<EventStream>> streams;
  for (int i = 0; i < kPages; ++i) {
    streams.push_back(live.Open(
        absl::StrCat("job ", i),
        [&, i]() -> std::optional<std::string> { return absl::StrCat(++rendered[i]); }, "",
        [&, i] { return versions[i].load(); }));
  }
  streams.push_back(
      live.Open("all jobs", [&]() -> std::optional<std::string> { return absl::StrCat(++lists); }));
  const auto sum = [&] {
    int of_all = 0;
    for (const std::atomic<int>& one : rendered) of_all += one;
    return of_all;
  };
  ASSERT_TRUE(Eventually([&] { return sum() == kPages && lists == 1; }));
  for (int change = 1; change <= 5; ++change) {
    ++versions[7];
    ++all;
    ASSERT_TRUE(Eventually([&] { return rendered[7] == 1 + change && lists == 1 + change; }));
  }
  EXPECT_EQ(sum(), kPages + 5) << "only the page of the job that changed";
}

// Pages that change all at once. The share is so small that each rendering beyond what is saved is followed by the longest pause.
class ManyPages {
 public:
  static constexpr int kPages = 100;

  explicit ManyPages(absl::Duration most_saved)
      : live_(
            [&] {
              LiveParts::Options options = Quick();
              options.share = 1e-9;
              options.most_saved = most_saved;
              return options;
            }(),
            [this] { return version.load(); }) {
    for (int i = 0; i < kPages; ++i) {
      streams_.push_back(live_.Open(absl::StrCat(i), [this]() -> std::optional<std::string> {
        return absl::StrCat(++rendered);
      }));
    }
  }

  std::atomic<int64_t> version = 1;
  std::atomic<int> rendered = 0;

 private:
  LiveParts live_;
  std::vector<std::shared_ptr<EventStream>> streams_;
};

TEST(LiveParts, ManyPagesThatChangeAtOnceAreRenderedAtOnce) {
  ManyPages pages(absl::Hours(1));
  for (int turn = 1; turn <= 3; ++turn) {
    ASSERT_TRUE(Eventually([&] { return pages.rendered >= turn * ManyPages::kPages; }));
    ++pages.version;
  }
}

TEST(LiveParts, WithoutSavingsEachRenderingIsFollowedByAPause) {
  ManyPages pages(absl::ZeroDuration());
  ASSERT_TRUE(Eventually([&] { return pages.rendered >= 2; }));
  EXPECT_LT(pages.rendered, 20);
}

TEST(LiveParts, WhatChangedGoesBeforeWhatIsRefreshed) {
  constexpr int kPages = 50;
  LiveParts::Options options = Quick();
  options.interval = options.refresh = absl::ZeroDuration();  // all pages are always due
  std::atomic<int> rendered = 0, shown = 0;
  std::atomic<int64_t> version = 0;
  // Only of the thread that renders.
  int changed_at = 0, most_before = 0;
  int64_t last = 0;
  {
    LiveParts live(options, [] { return int64_t{1}; });
    std::vector<std::shared_ptr<EventStream>> streams;
    for (int i = 0; i < kPages; ++i) {
      streams.push_back(live.Open(absl::StrCat(i), [&]() -> std::optional<std::string> {
        if (++rendered % 97 == 0) {
          ++version;
          changed_at = rendered;
        }
        return std::nullopt;
      }));
    }
    streams.push_back(live.Open(
        "the one that changes",
        [&]() -> std::optional<std::string> {
          if (version != last) {
            most_before = std::max(most_before, rendered - changed_at);
            last = version;
            ++shown;
          }
          return std::nullopt;
        },
        "", [&] { return version.load(); }));
    EXPECT_TRUE(Eventually([&] { return shown >= 10; }));
  }
  EXPECT_EQ(most_before, 0) << "pages that were rendered between the change and its own";
}

TEST(LiveParts, AJobThatRestsIsRefreshedLessAndLess) {
  LiveParts::Options options = Quick();
  options.interval = absl::ZeroDuration();
  options.refresh = absl::Nanoseconds(1);  // so that a page is always due, unless its pause grows
  options.most_refresh = absl::Hours(1);
  std::atomic<int64_t> version = 1;
  std::atomic<int> lists = 0, of_job = 0;
  std::atomic<bool> moves = false;  // the page of the job shows what time it is
  LiveParts live(options, [] { return int64_t{1}; });
  const auto list = live.Open("all jobs", [&]() -> std::optional<std::string> {
    ++lists;
    return "the same";
  });
  const auto job = live.Open(
      "job",
      [&]() -> std::optional<std::string> {
        ++of_job;
        return moves ? absl::StrCat(of_job.load()) : "the same";
      },
      "", [&] { return version.load(); });
  ASSERT_TRUE(Eventually([&] { return lists >= 2000; }));
  EXPECT_LE(of_job, 60) << "each pause is twice the one before";
  EXPECT_GE(of_job, 2);
  // A change ends the rest.
  moves = true;
  version = 2;
  const int lists_before = lists, before = of_job;
  ASSERT_TRUE(Eventually([&] { return lists >= lists_before + 2000; }));
  EXPECT_GE(of_job - before, 200);
}

TEST(LiveParts, ForgetsPagesThatNobodyLooksAt) {
  std::atomic<int> rendered = 0;
  std::atomic<int64_t> changes = 1;
  LiveParts::Options options = Quick();
  options.beat = absl::Milliseconds(50);
  LiveParts live(options, [&] { return ++changes; });
  const auto stream = live.Open("a", [&]() -> std::optional<std::string> {
    ++rendered;
    return std::nullopt;
  });
  EXPECT_TRUE(Eventually([&] { return rendered > 2; }));
  stream->Close();
  EXPECT_TRUE(Eventually([&] { return !live.Has("a"); }));
}

TEST(LiveParts, HasLimits) {
  LiveParts::Options options = Quick();
  options.most_pages = 2;
  options.most_streams = 4;
  LiveParts live(options, [] { return int64_t{1}; });
  const auto open = [&](const char* key) {
    return live.Open(key, []() -> std::optional<std::string> { return std::nullopt; });
  };
  std::vector<std::shared_ptr<EventStream>> streams = {open("a"), open("b")};
  EXPECT_EQ(open("c"), nullptr) << "a third page";
  streams.push_back(open("a"));
  streams.push_back(open("b"));
  for (const auto& stream : streams) EXPECT_NE(stream, nullptr);
  EXPECT_EQ(open("a"), nullptr) << "a fifth stream";
}

TEST(LiveParts, OneCallerLeavesRoomForOthers) {
  LiveParts::Options options = Quick();
  options.most_pages = 8;
  options.most_streams = 12;
  LiveParts live(options, [] { return int64_t{1}; });
  const auto open = [&](const char* key, const char* caller) {
    return live.Open(
        key, []() -> std::optional<std::string> { return std::nullopt; }, caller);
  };
  const std::vector<std::shared_ptr<EventStream>> streams = {
      open("ann a", "ann"), open("ann b", "ann"), open("bob a", "bob")};
  for (const auto& stream : streams) EXPECT_NE(stream, nullptr);
  EXPECT_EQ(open("ann c", "ann"), nullptr) << "a third page of 8";
  EXPECT_NE(open("ann a", "ann"), nullptr);
  EXPECT_EQ(open("ann a", "ann"), nullptr) << "a fourth stream of 12";
  EXPECT_NE(open("bob b", "bob"), nullptr);
  for (const char* key : {"a", "b", "c"}) EXPECT_NE(open(key, ""), nullptr) << "everybody";
}

TEST(LiveParts, OldStreamsEnd) {
  LiveParts::Options options = Quick();
  options.most_age = absl::Milliseconds(100);
  options.beat = absl::Milliseconds(50);
  LiveParts live(options, [] { return int64_t{1}; });
  const auto stream = live.Open("a", []() -> std::optional<std::string> { return std::nullopt; });
  EXPECT_TRUE(Eventually([&] { return stream->closed(); }));
}

TEST(LiveParts, EndsItsStreams) {
  std::shared_ptr<EventStream> stream;
  {
    LiveParts live(Quick(), [] { return int64_t{1}; });
    stream = live.Open("a", []() -> std::optional<std::string> { return std::nullopt; });
  }
  EXPECT_TRUE(stream->closed());
}

}  // namespace
}  // namespace heddle::scheduler
