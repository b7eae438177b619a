// What happens within a job: which task is next, when tuning ends, on how many devices it measures.
#include "tests/scheduler/core/dispatcher_fixture.h"

namespace heddle::scheduler {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using WithinJobTest = RoundsTest;

// ---- the choice ----

TEST_F(WithinJobTest, TrialsGoWhereTheySaveMost) {
  TwoCores();
  Start(1, Params(), {{"a"}, {"b"}});
  double heavy = 1e6;
  int rounds[2] = {0, 0};
  while (!Compiling()) {
    const TaskIndex task =
        RoundOf([&](TaskIndex t) { return t.value == 0 ? 100.0 : (heavy *= 0.98); });
    ++rounds[task.value];
  }
  EXPECT_EQ(rounds[0], 1) << "the floor";
  EXPECT_EQ(rounds[1], 3) << "what trials_per_task x tasks leaves";
}

TEST_F(WithinJobTest, WhatATaskCannotUseGoesToTheOthers) {
  TwoCores();
  Start(1, Params(), {{"a"}, {"b"}});
  End(v1::STAGE_PROPOSE, Proposed{1, true});  // a small space
  Round();
  while (!Compiling()) RoundAt(1000);
  EXPECT_EQ(job().tasks[0].trials, 1);
  EXPECT_EQ(job().tasks[1].trials, 15);
}

TEST_F(WithinJobTest, TheSameModelAgainMeasuresNothingHoweverTrialsWereSharedOut) {
  TwoCores();
  Start(1, Params(), {{"a", 1, {4, 4, 10}}, {"b", 1, {12, 12, 10}}});
  EXPECT_TRUE(Compiling());
}

TEST_F(WithinJobTest, ARestartChoosesTheSame) {
  TwoCores();
  Start(1, Params(40, 4), {{"a"}, {"b", 2}, {"c"}});
  double ns[3] = {1e5, 1e5, 1e5};
  auto measure = [&](TaskIndex t) { return ns[t.value] *= t.value == 2 ? 0.999 : 0.97; };
  for (int i = 0; i < 12; ++i) RoundOf(measure);
  // As JobLedger::Load would have it: trials, results, no grants.
  Job stored = job();
  for (Task& task : stored.tasks) {
    task.phase = Waiting{};
    task.budget = 0;
  }
  stored.queue.clear();
  stored.in_flight.clear();
  Dispatcher again(*MakePolicy("round_robin"));
  again.Restore(stored);
  std::optional<TaskIndex> chosen;
  again.SetNextAttempt(AttemptId{1000});
  for (const StartStage& start :
       All<StartStage>(again.Step(SlotsChanged{dispatcher_.slots(), ""}, now_)))
    chosen = start.task;
  EXPECT_EQ(chosen, Live(v1::STAGE_PROPOSE).task);
}

// ---- stops ----

TEST_F(WithinJobTest, TheTimeLimitLeavesPausesOutAndFinishesWhatIsMeasured) {
  TwoCores();
  JobParams params = Params(1000);
  params.time_limit = absl::Minutes(10);
  Start(1, params, {{"a"}, {"b"}});
  RoundAt(1000);
  Wait(absl::Minutes(6));
  Step(PauseRequested{JobId{1}, ""});
  Wait(absl::Hours(5));
  Step(ResumeRequested{JobId{1}});
  EXPECT_EQ(dispatcher_.NextWake(now_), now_ + absl::Minutes(4));
  End(v1::STAGE_PROPOSE, Proposed{4, false});
  Wait(absl::Minutes(4));
  EXPECT_FALSE(Compiling()) << "a round is being measured";
  Round();
  EXPECT_TRUE(Compiling());
  EXPECT_EQ(job().tasks[0].trials + job().tasks[1].trials, 8);
  End(v1::STAGE_COMPILE);
  EXPECT_THAT(DescribeJob(dispatcher_, job(), now_), HasSubstr("time limit of 10m is up"));
}

TEST_F(WithinJobTest, TheTimeUsedSurvivesARestart) {
  Job stored;
  stored.id = JobId{1};
  stored.params = Params(1000);
  stored.params.time_limit = absl::Minutes(10);
  stored.params.device_key = "key";
  stored.phase = Tuning{};
  stored.tuned = absl::Minutes(7);
  stored.tasks.resize(1);
  stored.tasks[0].best_ns = 10;
  dispatcher_.Restore(stored);
  TwoCores();
  Wait(absl::Minutes(2));
  EXPECT_FALSE(Compiling());
  EXPECT_EQ(dispatcher_.NextWake(now_), now_ + absl::Minutes(1));
  Wait(absl::Minutes(1));
  EXPECT_FALSE(job().stop.empty());
  Break(v1::STAGE_PROPOSE);
  Wait(absl::Minutes(1));
  EXPECT_TRUE(Compiling());
}

TEST_F(WithinJobTest, PlateausEndTasksAndThenTheJob) {
  TwoCores();
  JobParams params = Params(1000);
  params.plateau = 8;
  Start(1, params, {{"a"}, {"b"}});
  double falling = 1e6;
  for (int i = 0; i < 6; ++i)
    RoundOf([&](TaskIndex t) { return t.value == 0 ? 500 : (falling *= 0.95); });
  for (int i = 0; i < 100 && !std::holds_alternative<Finished>(job().tasks[0].phase); ++i)
    RoundOf([&](TaskIndex t) { return t.value == 0 ? 500 : (falling *= 0.95); });
  EXPECT_EQ(job().tasks[0].trials, 12) << "the first of them found the time, then eight did not";
  EXPECT_FALSE(Compiling());
  for (int i = 0; i < 4 && !Compiling(); ++i) RoundAt(falling);
  ASSERT_TRUE(Compiling());
  EXPECT_THAT(job().stop, HasSubstr("plateau: 2 of 2 tasks"));
}

TEST_F(WithinJobTest, ReachingTheTargetLatencyEndsTuning) {
  TwoCores();
  JobParams params = Params(1000);
  params.target_latency_ns = 5000;
  Start(1, params, {{"a", 2}, {"b"}});
  RoundAt(2000);
  EXPECT_FALSE(Compiling()) << "b has no time yet";
  RoundAt(2000);
  EXPECT_FALSE(Compiling());
  RoundAt(1000);
  for (int i = 0; i < 4 && !Compiling(); ++i) RoundAt(1000);
  ASSERT_TRUE(Compiling());
  EXPECT_THAT(job().stop, HasSubstr("the target latency of 5us is reached"));
}

TEST_F(WithinJobTest, WhatIsKnownMayMeetTheTargetAlready) {
  TwoCores();
  JobParams params = Params(1000);
  params.target_latency_ns = 5000;
  Start(1, params, {{"a", 2, {3, 3, 2000}}});
  EXPECT_TRUE(Compiling()) << "no trial is measured";
}

TEST_F(WithinJobTest, ARestartMakesEveryUpdateWhereTheDepthIsAutomatic) {
  Job stored;
  stored.id = JobId{1};
  stored.params = Params(1000);
  stored.params.pipeline_depth = 0;
  stored.phase = Tuning{};
  stored.tasks.resize(3);
  for (Task& task : stored.tasks) task.phase = WantsUpdate{}, task.trials = 4;
  dispatcher_.Restore(stored);
  EXPECT_THAT(job().in_flight, SizeIs(3));
}

// ---- splitting ----

std::vector<SlotInfo> ThreeDevices() {
  return {CpuSlot("cpu0", {0}), DeviceSlot("p1", {1}), DeviceSlot("p2", {2}),
          DeviceSlot("p3", {3})};
}

TEST_F(WithinJobTest, ARoundIsSharedOutAmongDevices) {
  Step(SlotsChanged{ThreeDevices(), ""});
  Start(1, Params(12, 12), {{"a"}});
  End(v1::STAGE_PROPOSE, Proposed{12, false});
  for (int64_t id = 1; id <= 12; ++id) Built(CandidateId{id});
  EXPECT_THAT(job().tasks[0].profiles, SizeIs(3));
  std::vector<size_t> queues;
  for (AttemptId id : job().tasks[0].profiles)
    queues.push_back(dispatcher_.live().at(id).candidates.size());
  EXPECT_THAT(queues, ElementsAre(4, 4, 4));
  EXPECT_EQ(Count<CloseProfile>(End(v1::STAGE_BUILD)), 0) << "closed with the last artifact";
  for (AttemptId id : job().tasks[0].profiles) EXPECT_TRUE(dispatcher_.live().at(id).input_closed);
}

TEST_F(WithinJobTest, TheDeviceKeyIsThatOfAUsableSlot) {
  std::vector<SlotInfo> slots = ThreeDevices();
  slots[1].device_key = "gone";
  slots[1].usable = false;
  Step(SlotsChanged{slots, ""});
  Step(JobSubmitted{JobId{1}, Params()});
  End(v1::STAGE_IMPORT, ImportOf({{"a"}}, ""));
  EXPECT_EQ(job().params.device_key, "key");
}

TEST_F(WithinJobTest, NoMoreDevicesThanAllowed) {
  Step(SlotsChanged{ThreeDevices(), ""});
  JobParams params = Params(12, 12);
  params.max_devices = 2;
  params.pipeline_depth = 3;
  Start(1, params, {{"a"}, {"b"}});
  End(v1::STAGE_PROPOSE, Proposed{12, false});
  for (int64_t id = 1; id <= 12; ++id) Built(CandidateId{id});
  EXPECT_THAT(job().tasks[0].profiles, SizeIs(2));
}

TEST_F(WithinJobTest, WithoutAWishTheDepthFollowsTheDevices) {
  Step(SlotsChanged{ThreeDevices(), ""});
  JobParams params = Params(12, 12);
  params.pipeline_depth = 0;
  std::vector<FoundTask> tasks(8);
  Start(1, params, tasks);
  EXPECT_THAT(job().in_flight, SizeIs(4));
  params.max_devices = 2;
  Step(JobSubmitted{JobId{2}, params});
  End(v1::STAGE_PROPOSE, Proposed{4, false});
  End(v1::STAGE_IMPORT, ImportOf(tasks, "key"));
  EXPECT_THAT(job(2).in_flight, SizeIs(3));
}

TEST_F(WithinJobTest, ABrokenStagesCandidatesGoToTheOthersDevice) {
  Step(SlotsChanged{{CpuSlot("cpu0", {0}), DeviceSlot("p1", {1}), DeviceSlot("p2", {2})}, ""});
  Start(1, Params(8, 8), {{"a"}});
  End(v1::STAGE_PROPOSE, Proposed{8, false});
  for (int64_t id = 1; id <= 6; ++id) Built(CandidateId{id});
  ASSERT_THAT(job().tasks[0].profiles, SizeIs(2));
  const AttemptId first = *job().tasks[0].profiles.begin();
  Step(StageFinished{first, {v1::FAULT_INFRASTRUCTURE, "x"}, true, {}, true});
  ASSERT_THAT(job().tasks[0].profiles, SizeIs(1));
  EXPECT_THAT(dispatcher_.live().at(*job().tasks[0].profiles.begin()).candidates, SizeIs(6));
}

}  // namespace
}  // namespace heddle::scheduler
