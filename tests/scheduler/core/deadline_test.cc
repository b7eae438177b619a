// Deadlines: when they are told, and what the predictive policy keeps free for them; and when it
// lets a profile stage wait for its builds.
#include "tests/scheduler/core/dispatcher_fixture.h"

namespace heddle::scheduler {
namespace {

using ::testing::HasSubstr;

JobParams Params(int trials = 8, int batch = 4) {
  JobParams params;
  params.target = params.record_target = kTarget;
  params.trials_per_task = trials;
  params.batch = batch;
  params.pipeline_depth = 1;
  return params;
}

class DeadlineTest : public DispatcherTest {
 protected:
  using DispatcherTest::DispatcherTest;
  void Start(int64_t id, const JobParams& params, const std::vector<FoundTask>& tasks) {
    Step(JobSubmitted{JobId{id}, params});
    End(v1::STAGE_IMPORT, ImportOf(tasks, "key"));
  }
  static std::vector<DeadlineEstimate> Told(const Decisions& decisions) {
    return All<DeadlineEstimate>(decisions);
  }
  // Eight devices on a job that has time for that; `now_` then is `later` after its first estimate.
  void BeginOnEightDevices(absl::Duration later) {
    for (int i = 0; i < 8; ++i) {
      slots_.push_back(CpuSlot(absl::StrCat("c", i), {i}));
      slots_.push_back(DeviceSlot(absl::StrCat("d", i), {i + 8}));
    }
    Step(SlotsChanged{slots_, ""});
    JobParams params = Params(400, 40);  // a second each; all of them are measured by 400 s
    params.deadline = now_ + absl::Seconds(200);
    Start(1, params, {{"a"}});
    ASSERT_TRUE(job().queue.empty()) << "its one task is in flight";
    now_ += later;
  }
  // All but one go; the devices are d0..d7.
  Decisions LoseDevices() {
    std::erase_if(slots_, [](const SlotInfo& slot) { return slot.device && slot.id.slot != "d0"; });
    return Step(SlotsChanged{slots_, ""});
  }
  std::vector<SlotInfo> slots_;
  int Running(int64_t job, v1::StageKind kind) {
    int count = 0;
    for (const auto& [id, stage] : dispatcher_.live())
      count += stage.job.value == job && stage.kind == kind;
    return count;
  }
};

class PredictiveTest : public DeadlineTest {
 protected:
  PredictiveTest() : DeadlineTest("predictive") {}
};

TEST_F(DeadlineTest, ADeadlineIsLookedAtThoughNothingHappens) {
  std::vector<SlotInfo> slots = {CpuSlot("cpu0", {0}), DeviceSlot("d", {1})};
  slots[1].usable = false;  // and never will be
  Step(SlotsChanged{slots, ""});
  JobParams params = Params();
  params.deadline = now_ + absl::Hours(1);
  Start(1, params, {{"a"}});
  bool late = false;
  int wakes = 0;
  for (; !late && wakes < 100 && now_ < params.deadline; ++wakes) {
    now_ = std::min(dispatcher_.NextWake(now_), params.deadline);
    for (const DeadlineEstimate& told : Told(Step(Tick{}))) late |= told.late;
  }
  EXPECT_TRUE(late);
  EXPECT_LT(wakes, 100);
}

TEST_F(DeadlineTest, WhatHappensIsTakenIntoTheEstimateAtOnce) {
  BeginOnEightDevices(absl::Seconds(5));
  const std::vector<DeadlineEstimate> told = Told(LoseDevices());
  ASSERT_EQ(told.size(), 1u);
  EXPECT_TRUE(told[0].late);
}

// Right after an estimate none is made; the next one follows soon, not when it is looked at anyway.
TEST_F(DeadlineTest, WhatHappensRightAfterAnEstimateIsToldSoon) {
  BeginOnEightDevices(absl::Milliseconds(100));
  const absl::Time lost = now_;
  std::vector<DeadlineEstimate> told = Told(LoseDevices());
  EXPECT_TRUE(told.empty());
  for (int wakes = 0; told.empty() && wakes < 10; ++wakes) {
    now_ = dispatcher_.NextWake(now_);
    told = Told(Step(Tick{}));
  }
  ASSERT_EQ(told.size(), 1u);
  EXPECT_TRUE(told[0].late);
  EXPECT_LT(now_ - lost, absl::Seconds(2));
}

TEST_F(DeadlineTest, WithoutADeviceNoneCanBeMet) {
  Step(SlotsChanged{{CpuSlot("cpu0", {0})}, ""});
  JobParams params = Params();
  params.deadline = now_ + absl::Hours(10);
  Step(JobSubmitted{JobId{1}, params});
  std::vector<DeadlineEstimate> told = Told(End(v1::STAGE_IMPORT, ImportOf({{"a"}}, "key")));
  ASSERT_EQ(told.size(), 1u);
  EXPECT_TRUE(told[0].late);
  EXPECT_THAT(DescribeEstimate(job(), told[0], now_, now_), HasSubstr("there is no device"));
  now_ += absl::Seconds(1);
  told = Told(Step(SlotsChanged{{CpuSlot("cpu0", {0}), DeviceSlot("d", {1})}, ""}));
  ASSERT_EQ(told.size(), 1u);
  EXPECT_FALSE(told[0].late);
}

// Tuning that stops in time lets a deadline be met, however many trials there would be.
TEST_F(DeadlineTest, ATimeLimitBoundsTheEstimate) {
  for (const bool limited : {false, true}) {
    Dispatcher dispatcher(*MakePolicy("predictive"));
    dispatcher.Step(SlotsChanged{{CpuSlot("cpu0", {0}), DeviceSlot("d", {1})}, ""}, now_);
    JobParams params = Params(10'000);
    params.deadline = now_ + absl::Hours(1);
    if (limited) params.time_limit = absl::Minutes(30);
    dispatcher.Step(JobSubmitted{JobId{1}, params}, now_);
    const AttemptId import = dispatcher.live().begin()->first;
    const std::vector<DeadlineEstimate> told =
        Told(dispatcher.Step(StageFinished{import, {}, true, ImportOf({{"a"}}, "key")}, now_));
    ASSERT_EQ(told.size(), 1u);
    EXPECT_EQ(told[0].late, !limited);
  }
}

// What was begun before there is a device keeps tuning from ending at its time limit.
TEST_F(DeadlineTest, ATimeLimitPromisesNothingWithoutADevice) {
  Step(SlotsChanged{{CpuSlot("cpu0", {0})}, ""});
  JobParams params = Params();
  params.threads = 0;
  params.time_limit = absl::Minutes(30);
  params.deadline = now_ + absl::Hours(10);
  Step(JobSubmitted{JobId{1}, params});
  const std::vector<DeadlineEstimate> told = Told(End(v1::STAGE_IMPORT, ImportOf({{"a"}}, "")));
  ASSERT_EQ(told.size(), 1u);
  EXPECT_TRUE(told[0].late);
  End(v1::STAGE_PROPOSE, Proposed{4, false});
  const StartStage build = Live(v1::STAGE_BUILD);
  for (CandidateId id : build.candidates) Built(id);
  End(v1::STAGE_BUILD);
  Wait(absl::Minutes(31));
  ASSERT_FALSE(job().stop.empty());
  ASSERT_TRUE(std::holds_alternative<Tuning>(job().phase)) << "it waits for its candidates";
  EXPECT_EQ(dispatcher_.ExpectedEnd(job(), now_), absl::InfiniteFuture());
}

TEST_F(DeadlineTest, WhatIsInFlightAtTheTimeLimitIsCounted) {
  constexpr int kBatch = 200;  // a second each to measure
  Step(SlotsChanged{{CpuSlot("cpu0", {0}), DeviceSlot("d", {1})}, ""});
  JobParams params = Params(10'000, kBatch);
  params.time_limit = absl::Minutes(1);
  params.deadline = now_ + absl::Minutes(3);
  Start(1, params, {{"a"}});
  ASSERT_LT(dispatcher_.ExpectedEnd(job(), now_), params.deadline);
  now_ += absl::Seconds(20);
  const std::vector<DeadlineEstimate> told = Told(End(v1::STAGE_PROPOSE, Proposed{kBatch, false}));
  ASSERT_EQ(told.size(), 1u);
  EXPECT_TRUE(told[0].late);
  Wait(absl::Minutes(1));
  ASSERT_FALSE(job().stop.empty());
  EXPECT_GE(dispatcher_.ExpectedEnd(job(), now_) - now_,
            dispatcher_.forecast().Stage(job(), v1::STAGE_PROFILE, TaskIndex{0}, kBatch));
}

// A warning from before a restart may hold no more, and nobody else knows that it was given.
TEST_F(DeadlineTest, TheFirstEstimateIsToldThoughTheDeadlineCanBeMet) {
  TwoCores();
  Job restored;
  restored.id = JobId{1};
  restored.params = Params();
  restored.params.deadline = now_ + absl::Hours(10);
  restored.phase = Tuning{};
  restored.tasks.resize(1);
  restored.tasks[0].key = "a";
  dispatcher_.Restore(restored);
  std::vector<DeadlineEstimate> told = Told(Step(Tick{}));
  ASSERT_EQ(told.size(), 1u);
  EXPECT_TRUE(Told(Step(Tick{})).empty());
  EXPECT_FALSE(told[0].late);
}

TEST_F(DeadlineTest, APausedJobIsToldAtItsDeadline) {
  TwoCores();
  JobParams params = Params();
  params.deadline = now_ + absl::Hours(1);
  Start(1, params, {{"a"}});
  Step(PauseRequested{JobId{1}, ""});
  std::vector<DeadlineEstimate> told;
  for (int wakes = 0; told.empty() && wakes < 100; ++wakes) {
    now_ = dispatcher_.NextWake(now_);
    told = Told(Step(Tick{}));
  }
  ASSERT_EQ(told.size(), 1u);
  EXPECT_TRUE(told[0].late);
  EXPECT_EQ(now_, params.deadline);
  EXPECT_THAT(DescribeEstimate(job(), told[0], now_, now_), HasSubstr("is paused"));
}

// Eight devices; the job that is short of time has three trials left, so five are the others'.
TEST_F(PredictiveTest, AShortJobKeepsNoMoreDevicesFreeThanItHasTrials) {
  std::vector<SlotInfo> slots = {CpuSlot("cpu0", {0})};
  for (int i = 0; i < 8; ++i) slots.push_back(DeviceSlot(absl::StrCat("d", i), {i + 2}));
  Step(SlotsChanged{slots, ""});
  JobParams large = Params(16, 16), urgent = Params(3, 3);
  large.pipeline_depth = urgent.pipeline_depth = 0;
  Start(1, large, {{"a"}});
  End(v1::STAGE_PROPOSE, Proposed{16, false});
  const StartStage build = Live(v1::STAGE_BUILD);
  slots.push_back(CpuSlot("cpu1", {1}));
  urgent.deadline = now_ + absl::Seconds(20);
  Step(SlotsChanged{slots, ""});
  Start(2, urgent, {{"b"}});
  ASSERT_EQ(Running(2, v1::STAGE_PROPOSE), 1);
  for (CandidateId id : build.candidates)
    Step(CandidateBuilt{build.attempt, id, v1::OUTCOME_OK, ""});
  Step(StageFinished{build.attempt, {}, true, {}});
  EXPECT_EQ(Running(1, v1::STAGE_PROFILE), 5);
}

// Builds take 10 s, measurements 1 s: the stage that measures waits, and is looked at again when it
// should start, not all the time until then.
TEST_F(PredictiveTest, AProfileStageThatWaitsForBuildsIsLookedAtOnce) {
  Step(SlotsChanged{{CpuSlot("cpu0", {0}), DeviceSlot("d", {1})}, ""});
  Start(1, Params(16, 8), {{"a"}});
  int wakes = 0;
  for (int round = 0; round < 2; ++round) {
    End(v1::STAGE_PROPOSE, Proposed{8, false});
    const StartStage build = Live(v1::STAGE_BUILD);
    ASSERT_EQ(build.candidates.size(), 8u);
    for (CandidateId id : build.candidates) {
      if (round == 1 && id != build.candidates.front()) break;
      now_ += absl::Seconds(9);
      Built(id);
      now_ += absl::Seconds(1);
      if (round == 0) Profiled(id);
    }
    for (; round == 1 && !IsLive(v1::STAGE_PROFILE) && wakes < 20; ++wakes) {
      const absl::Time wake = dispatcher_.NextWake(now_);
      ASSERT_GE(wake, now_ + absl::Milliseconds(10));
      ASSERT_LT(wake, now_ + absl::Minutes(2));
      now_ = wake;
      Step(Tick{});
    }
    if (round == 1) break;
    Step(StageFinished{build.attempt, {}, true, {}});
    End(v1::STAGE_PROFILE);
    End(v1::STAGE_UPDATE);
  }
  EXPECT_TRUE(IsLive(v1::STAGE_PROFILE));
  EXPECT_GE(wakes, 1);
  EXPECT_LE(wakes, 2);
}

}  // namespace
}  // namespace heddle::scheduler
