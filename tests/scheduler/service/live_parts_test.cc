// Which open page is rendered when, and for whom.
#include "scheduler/page/live_parts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>

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
