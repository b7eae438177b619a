// Hollow workers with a real tracker and a real scheduler.
#include "tests/hollow/hollow_workers.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/message_rules.h"
#include "tests/eventually.h"
#include "tests/hollow/farm.h"
#include "tests/places.h"

namespace heddle::hollow {
namespace {

using testing::Eventually;

TEST(StageScript, AnswersFollowFromTheQuestion) {
  const StageScript script(ScriptOptions{.seed = 7, .candidate_faults = 0.5});
  v1::StageStart start;
  start.set_job("j1");
  start.set_attempt_id(3);
  start.set_kind(v1::STAGE_PROFILE);
  start.mutable_profile()->set_workload("w");
  int crashed = 0;
  for (int64_t id = 1; id <= 200; ++id) {
    v1::StageInput input;
    input.mutable_profile()->mutable_candidate()->set_id(id);
    input.mutable_profile()->mutable_candidate()->set_trace(absl::StrCat("trace ", id));
    const v1::StageEvent answer = script.AnswerTo(start, input);
    EXPECT_EQ(CheckEvent(start, answer), absl::OkStatus());
    EXPECT_EQ(answer.SerializeAsString(), script.AnswerTo(start, input).SerializeAsString());
    crashed += answer.profiled().measurement().outcome() == v1::OUTCOME_RUN_CRASH;
    EXPECT_GT(script.TimeOf(start, id), absl::Milliseconds(60));
    EXPECT_LT(script.TimeOf(start, id), absl::Milliseconds(1500));
  }
  EXPECT_GT(crashed, 60);
  EXPECT_LT(crashed, 140);
}

// Without it, the memory of a scheduler with hollow workers would say nothing of one with real workers.
TEST(StageScript, BuildsSendCodeOfSomeSize) {
  const StageScript script(ScriptOptions{});
  v1::StageStart start;
  start.set_kind(v1::STAGE_BUILD);
  double bytes = 0;
  for (int64_t id = 1; id <= 200; ++id) {
    v1::StageInput input;
    input.mutable_build()->mutable_candidate()->set_id(id);
    input.mutable_build()->mutable_candidate()->set_trace(absl::StrCat("trace ", id));
    const v1::StageEvent answer = script.AnswerTo(start, input);
    EXPECT_EQ(CheckEvent(start, answer), absl::OkStatus());
    bytes += static_cast<double>(answer.built().artifact().ByteSizeLong());
  }
  EXPECT_GT(bytes / 200, 60e3);
  EXPECT_LT(bytes / 200, 120e3);
}

// All ways in which stages end: well, by scripted faults, and by calls that break.
TEST(HollowWorkers, TuneJobsToTheirEnd) {
  const auto farm =
      Farm::Start(HEDDLE_BIN_DIR, absl::StrCat(::testing::TempDir(), "/hollow", getpid()));
  ASSERT_TRUE(farm.ok()) << farm.status();
  HollowOptions options;
  options.tracker = (*farm)->tracker_address();
  options.workers = 6;
  options.script.tasks = 3;
  options.script.pace = 0.02;
  options.script.candidate_faults = 0.2;
  options.script.stage_faults = 0.05;
  options.script.breaks = 0.05;
  const auto workers = HollowWorkers::Start(options);
  ASSERT_TRUE(workers.ok()) << workers.status();
  ASSERT_TRUE(Eventually([&] { return (*workers)->Registered() == 6; }));
  std::vector<std::string> jobs;
  for (int i = 0; i < 4; ++i) {
    const auto job = (*farm)->Submit(i, 32);
    ASSERT_TRUE(job.ok()) << job.status();
    jobs.push_back(*job);
  }
  for (const std::string& id : jobs) {
    v1::Job job;
    EXPECT_TRUE(Eventually([&] {
      const auto got = (*farm)->Get(id);
      if (got.ok()) job = *got;
      return got.ok() && (job.state() == v1::JOB_DONE || job.state() == v1::JOB_FAILED);
    }));
    EXPECT_EQ(job.state(), v1::JOB_DONE) << job.ShortDebugString();
  }
  const HollowCounts counts = (*workers)->TakeCounts();
  EXPECT_GT(counts.trials, 350) << "of 384, of which hardly any is lost for good";
  EXPECT_EQ(counts.overlapping, 0);
  EXPECT_GT(counts.faults, 0);
  EXPECT_GT(counts.interrupted, 0);
  EXPECT_FALSE(counts.gaps_us.empty());
  EXPECT_GT(counts.device_seconds, 0);
  EXPECT_TRUE((*farm)->scheduler().Alive());
}

TEST(HollowWorkers, RefuseWhatIsOutOfRange) {
  HollowOptions options;
  options.tracker = "127.0.0.1:1";
  options.workers = 0;
  EXPECT_TRUE(absl::IsInvalidArgument(HollowWorkers::Start(options).status()));
  options.workers = 1;
  options.tracker = "10.0.0.1:9191";
  EXPECT_TRUE(absl::IsInvalidArgument(HollowWorkers::Start(options).status()));
}

}  // namespace
}  // namespace heddle::hollow
