// Which stages are read again when somebody looks at them again.
#include "scheduler/service/reads/kept_stages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace heddle::scheduler {
namespace {

using ::testing::ElementsAre;

class KeptStagesTest : public ::testing::Test {
 protected:
  // A stage of the store that every job has. `end` is 0 while it runs.
  void Put(int64_t attempt, int64_t start, int64_t end) {
    std::erase_if(store_, [&](const v1::StageSpan& span) { return span.attempt_id() == attempt; });
    v1::StageSpan span;
    span.set_attempt_id(attempt);
    span.set_start_unix_ns(start);
    span.set_end_unix_ns(end);
    store_.push_back(span);
    std::sort(store_.begin(), store_.end(), [](const v1::StageSpan& a, const v1::StageSpan& b) {
      return a.start_unix_ns() < b.start_unix_ns();
    });
  }
  KeptStages::Options Options(int64_t late) {
    return {.read = [this](const std::string&, int64_t from) -> absl::StatusOr<KeptStages::Spans> {
              from_.push_back(from);
              if (!broken_.ok()) return broken_;
              KeptStages::Spans found;
              for (const v1::StageSpan& span : store_) {
                if (span.start_unix_ns() >= from) found.push_back(span);
              }
              return found;
            },
            .place = [](const v1::StageSpan& span) { return span.start_unix_ns(); },
            .late = late,
            .most = kMostSpans,
            .now = [this] { return now_; }};
  }
  // Attempts and ends that a look at the job gives.
  std::vector<int64_t> Ends(const std::string& job) {
    std::vector<int64_t> ends;
    const absl::StatusOr<KeptStages::Spans> spans = stages_.Latest(job);
    EXPECT_TRUE(spans.ok()) << spans.status();
    for (const v1::StageSpan& span : spans.value_or(KeptStages::Spans()))
      ends.push_back(span.attempt_id() * 100 + span.end_unix_ns());
    return ends;
  }

  static constexpr size_t kMostSpans = 5;
  KeptStages::Spans store_;
  std::vector<int64_t> from_;  // of each read
  absl::Status broken_;
  absl::Time now_ = absl::UnixEpoch();
  KeptStages stages_{Options(/*late=*/0)};
};

TEST_F(KeptStagesTest, ReadsOnlyWhatMayHaveChanged) {
  Put(1, 10, 15);
  Put(2, 20, 0);
  Put(3, 30, 35);
  EXPECT_THAT(Ends("j1"), ElementsAre(115, 200, 335));
  Put(2, 20, 45);
  Put(4, 40, 0);
  EXPECT_THAT(Ends("j1"), ElementsAre(115, 245, 335, 400));
  Put(4, 40, 48);
  EXPECT_THAT(Ends("j1"), ElementsAre(115, 245, 335, 448));
  EXPECT_THAT(Ends("j1"), ElementsAre(115, 245, 335, 448)) << "nothing has changed";
  EXPECT_THAT(from_, ElementsAre(0, 20, 40, 40));
  EXPECT_THAT(Ends("j2"), ElementsAre(115, 245, 335, 448)) << "another job is read by itself";
  EXPECT_EQ(from_.back(), 0);
}

TEST_F(KeptStagesTest, NowAndThenReadsAll) {
  Put(1, 10, 15);
  Put(2, 20, 25);
  EXPECT_THAT(Ends("j1"), ElementsAre(115, 225));
  store_.erase(store_.begin());
  now_ += KeptStages::kKept / 2;
  EXPECT_THAT(Ends("j1"), ElementsAre(115, 225));
  now_ += KeptStages::kKept / 2;
  EXPECT_THAT(Ends("j1"), ElementsAre(225));
  EXPECT_THAT(from_, ElementsAre(0, 20, 0));
}

TEST_F(KeptStagesTest, TheLatestAreShown) {
  for (int i = 1; i <= 4; ++i) Put(i, 10 * i, 1);
  EXPECT_THAT(Ends("j1"), ElementsAre(101, 201, 301, 401));
  for (int i = 5; i <= 7; ++i) Put(i, 10 * i, 1);
  EXPECT_THAT(Ends("j1"), ElementsAre(301, 401, 501, 601, 701));
}

TEST_F(KeptStagesTest, AfterAnErrorAllAreReadAgain) {
  Put(1, 10, 15);
  EXPECT_THAT(Ends("j1"), ElementsAre(115));
  broken_ = absl::UnavailableError("the store is away");
  EXPECT_EQ(stages_.Latest("j1").status(), broken_);
  broken_ = absl::OkStatus();
  EXPECT_THAT(Ends("j1"), ElementsAre(115));
  EXPECT_THAT(from_, ElementsAre(0, 10, 0));
}

TEST_F(KeptStagesTest, WhatIsStoredLateIsSeen) {
  KeptStages stages(Options(/*late=*/10));
  Put(1, 10, 15);
  Put(2, 30, 35);
  EXPECT_EQ(stages.Latest("j1")->size(), 2u);
  Put(3, 20, 25);
  EXPECT_EQ(stages.Latest("j1")->size(), 3u);
  Put(4, 19, 25);
  EXPECT_EQ(stages.Latest("j1")->size(), 3u) << "later than a stage may be";
  EXPECT_THAT(from_, ElementsAre(0, 20, 20));
}

TEST_F(KeptStagesTest, WhatIsOpenIsWaitedForHoweverLongItTakes) {
  int64_t open = 20;
  KeptStages::Options options = Options(/*late=*/0);
  options.first_open = [&open] { return open; };
  KeptStages stages(options);
  Put(1, 10, 15);
  Put(3, 900, 935);  // the one that begins at 20 has no lease yet
  EXPECT_EQ(stages.Latest("j1")->size(), 2u);
  Put(2, 20, 25);
  open = 950;
  EXPECT_EQ(stages.Latest("j1")->size(), 3u);
  EXPECT_EQ(stages.Latest("j1")->size(), 3u);
  EXPECT_THAT(from_, ElementsAre(0, 20, 900)) << "what is settled is not read again";
}

TEST(KeptStages, KeepsNotTooMuch) {
  int whole = 0;  // reads of all stages of a job
  KeptStages::Options options;
  options.read = [&](const std::string&, int64_t from) -> absl::StatusOr<KeptStages::Spans> {
    whole += from == 0;
    KeptStages::Spans spans(from == 0 ? KeptStages::kMostKept / 2 : 1);
    for (v1::StageSpan& span : spans) {
      span.set_start_unix_ns(1);
      span.set_end_unix_ns(9);
    }
    spans.back().set_start_unix_ns(2);
    return spans;
  };
  options.place = [](const v1::StageSpan& span) { return span.start_unix_ns(); };
  options.most = KeptStages::kMostKept;
  options.now = [] { return absl::UnixEpoch(); };
  KeptStages stages(options);
  for (const char* job : {"j1", "j2", "j1", "j2"}) EXPECT_TRUE(stages.Latest(job).ok());
  EXPECT_EQ(whole, 2) << "both are kept";
  EXPECT_TRUE(stages.Latest("j1").ok());
  EXPECT_TRUE(stages.Latest("j3").ok());
  EXPECT_TRUE(stages.Latest("j1").ok());
  EXPECT_EQ(whole, 3) << "the one that was asked for longest ago made room";
  EXPECT_TRUE(stages.Latest("j2").ok());
  EXPECT_EQ(whole, 4);
}

}  // namespace
}  // namespace heddle::scheduler
