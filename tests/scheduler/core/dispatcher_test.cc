// Single rules of the dispatcher, one test each; those of faults are in dispatcher_faults_test.cc.
// What holds under any course of events is in simulation_test.cc.
#include <map>

#include "tests/scheduler/core/dispatcher_fixture.h"

namespace heddle::scheduler {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

TEST_F(DispatcherTest, AWholeJob) {
  TwoCores();
  Submit(1, 6, 4);
  Import(1);
  EXPECT_EQ(Live(v1::STAGE_PROPOSE).count, 4);
  EXPECT_EQ(Count<AddCandidates>(End(v1::STAGE_PROPOSE, Proposed{4, false})), 1);
  EXPECT_THAT(Live(v1::STAGE_BUILD).candidates, SizeIs(4));
  Round();
  End(v1::STAGE_UPDATE);
  EXPECT_EQ(Live(v1::STAGE_PROPOSE).count, 2) << "what is left of the budget";
  End(v1::STAGE_PROPOSE, Proposed{2, false});
  Round();
  EXPECT_FALSE(IsLive(v1::STAGE_UPDATE)) << "there is nothing to learn for";
  End(v1::STAGE_COMPILE);
  EXPECT_TRUE(std::holds_alternative<Done>(job().phase));
  EXPECT_EQ(job().tasks[0].trials, 6);
}

TEST_F(DispatcherTest, ProfileStartsWithTheFirstArtifactAndIsFedTheRest) {
  TwoCores();
  Submit(1);
  Import(1);
  End(v1::STAGE_PROPOSE, Proposed{3, false});
  EXPECT_FALSE(IsLive(v1::STAGE_PROFILE));
  Built(CandidateId{1});
  EXPECT_EQ(Live(v1::STAGE_PROFILE).candidates, std::vector<CandidateId>{CandidateId{1}});
  auto second = Built(CandidateId{2});
  EXPECT_EQ(Count<FeedProfile>(second), 1);
  EXPECT_EQ(Count<CloseProfile>(second), 0);
  auto third = Built(CandidateId{3}, v1::OUTCOME_BUILD_ERROR);
  EXPECT_EQ(Count<FinishCandidate>(third), 1);
  EXPECT_EQ(Count<CloseProfile>(third), 1) << "the round's builds are all in";
}

TEST_F(DispatcherTest, AProfileStageNeverWaitsForABuildThatIsNotRunning) {
  TwoCores();
  Submit(1);
  Import(1);
  End(v1::STAGE_PROPOSE, Proposed{3, false});
  Built(CandidateId{1});
  EXPECT_EQ(Count<CloseProfile>(Break(v1::STAGE_BUILD)), 1);
}

// A machine that drains has little time left: what it was given it measures, the rest goes elsewhere.
TEST_F(DispatcherTest, ASlotThatDrainsGetsNoFurtherCandidates) {
  std::vector<SlotInfo> slots = {CpuSlot("cpu0", {0}), DeviceSlot("p", {1}, "w")};
  Step(SlotsChanged{slots, ""});
  Submit(1);
  Import(1);
  End(v1::STAGE_PROPOSE, Proposed{3, false});
  Built(CandidateId{1});
  const AttemptId first = Live(v1::STAGE_PROFILE).attempt;
  slots[1].usable = false;
  slots[1].why_not = "draining";
  EXPECT_EQ(Count<CloseProfile>(Step(SlotsChanged{slots, ""})), 1);
  EXPECT_EQ(Count<FeedProfile>(Built(CandidateId{2})), 0);
  EXPECT_EQ(Count<FinishCandidate>(
                Step(CandidateProfiled{first, CandidateId{1}, v1::OUTCOME_OK, "", 1.0, 1e8})),
            1);
  slots.push_back(DeviceSlot("p", {1}, "x"));
  Step(SlotsChanged{slots, ""});
  const StartStage second = Live(v1::STAGE_PROFILE);
  EXPECT_NE(second.attempt, first);
  EXPECT_EQ(second.slot.worker, "x");
  EXPECT_EQ(second.candidates, std::vector<CandidateId>{CandidateId{2}});
  EXPECT_EQ(Count<FeedProfile>(Built(CandidateId{3})), 1);
  Step(StageFinished{first, {}, true, {}});
}

TEST_F(DispatcherTest, JobsTakeTurns) {
  Step(SlotsChanged{{CpuSlot("cpu0", {0}), DeviceSlot("p1", {1})}, ""});
  for (int64_t id : {1, 2, 3}) Submit(id);
  std::vector<int64_t> turns;
  for (int i = 0; i < 3; ++i) {
    turns.push_back(Live(v1::STAGE_IMPORT).job.value);
    Import(2);
  }
  EXPECT_THAT(turns, ::testing::ElementsAre(1, 2, 3));
  // A turn lasts until the builds of the round have begun.
  turns.clear();
  for (int i = 0; i < 6; ++i) {
    turns.push_back(started_.back().job.value);
    if (i % 2 == 0) {
      End(v1::STAGE_PROPOSE, Proposed{4, false});
    } else {
      Step(StageFinished{Live(v1::STAGE_BUILD).attempt, {v1::FAULT_INFRASTRUCTURE, "x"}, true, {}});
    }
  }
  EXPECT_THAT(turns, ::testing::ElementsAre(1, 1, 2, 2, 3, 3));
}

TEST_F(DispatcherTest, WhatWaitsIsToldWithTheTimeSinceWhen) {
  const absl::Time begin = now_;
  Step(SlotsChanged{{CpuSlot("cpu0", {0})}, ""});
  Submit(1);  // has the slot
  Submit(2);
  Wait(absl::Seconds(3));
  Submit(3);
  std::map<JobId, absl::Time> waiting;
  dispatcher_.ForEachWaiting([&](const WorkItem& work, absl::Time since) {
    EXPECT_EQ(work.kind, v1::STAGE_IMPORT);
    waiting[work.job] = since;
  });
  EXPECT_EQ(waiting,
            (std::map<JobId, absl::Time>{{JobId{2}, begin}, {JobId{3}, begin + absl::Seconds(3)}}));
  EXPECT_EQ(started_.back().ready_since, begin);
  now_ += absl::Seconds(4);
  Step(CancelRequested{JobId{1}, ""});
  Step(StageFinished{started_.back().attempt, {v1::FAULT_INFRASTRUCTURE, "cancelled"}, true, {}});
  EXPECT_EQ(started_.back().job, JobId{2});
  EXPECT_EQ(started_.back().ready_since, begin) << "seven seconds before it started";
}

TEST_F(DispatcherTest, TasksTakeTurnsWithinTheDepth) {
  TwoCores();
  Submit(1, 8, 4, 1, 1);
  Import(3);
  std::vector<int> order;
  for (int i = 0; i < 6; ++i) {
    order.push_back(Live(v1::STAGE_PROPOSE).task->value);
    End(v1::STAGE_PROPOSE, Proposed{4, false});
    Round();
    if (IsLive(v1::STAGE_UPDATE)) End(v1::STAGE_UPDATE);
  }
  EXPECT_THAT(order, ::testing::ElementsAre(0, 1, 2, 0, 1, 2));
}

TEST_F(DispatcherTest, DepthTwoKeepsCpuAndDeviceBusy) {
  TwoCores();
  Submit(1);
  Import(3);
  End(v1::STAGE_PROPOSE, Proposed{2, false});
  Built(CandidateId{1});
  Built(CandidateId{2});
  End(v1::STAGE_BUILD);
  EXPECT_TRUE(IsLive(v1::STAGE_PROFILE));
  EXPECT_EQ(Live(v1::STAGE_PROPOSE).task->value, 1)
      << "the second task is proposed for while the first is measured";
}

TEST_F(DispatcherTest, SlotsThatShareACoreAreNeverUsedTogether) {
  Step(SlotsChanged{{CpuSlot("cpu0", {0}), DeviceSlot("p0", {0})}, ""});
  Submit(1);
  Import(1);
  End(v1::STAGE_PROPOSE, Proposed{2, false});
  Built(CandidateId{1});
  EXPECT_FALSE(IsLive(v1::STAGE_PROFILE)) << "the build still runs on that core";
  Built(CandidateId{2});
  auto decisions = End(v1::STAGE_BUILD);
  EXPECT_THAT(Live(v1::STAGE_PROFILE).candidates, SizeIs(2));
  EXPECT_EQ(Count<CloseProfile>(decisions), 1);
}

TEST_F(DispatcherTest, AWideSlotIsKeptFreeForWorkWhoseTurnItIs) {
  TwoCores();
  Submit(1, 8, 4, 2);  // two threads: needs both cores
  Import(1);
  Submit(2);
  Submit(3);
  // The CPU slot goes round the jobs; as soon as job 1 has something to profile, nothing new
  // may start on core 0.
  for (int i = 0; i < 50 && !IsLive(v1::STAGE_PROFILE); ++i) {
    ASSERT_FALSE(dispatcher_.live().empty());
    const LiveStage stage = dispatcher_.live().begin()->second;
    switch (stage.kind) {
      case v1::STAGE_IMPORT:
        Import(1);
        break;
      case v1::STAGE_PROPOSE:
        Step(StageFinished{stage.id, {}, true, Proposed{4, false}});
        break;
      case v1::STAGE_BUILD:
        for (CandidateId id : stage.candidates)
          Step(CandidateBuilt{stage.id, id, v1::OUTCOME_OK, ""});
        [[fallthrough]];
      default:
        Step(StageFinished{stage.id, {}, true, {}});
    }
    if (IsLive(v1::STAGE_PROFILE) && Live(v1::STAGE_PROFILE).job.value != 1) {
      const StartStage other = Live(v1::STAGE_PROFILE);
      for (CandidateId id : other.candidates)
        Step(CandidateProfiled{other.attempt, id, v1::OUTCOME_OK, ""});
      Step(StageFinished{other.attempt, {}, true, {}});
    }
  }
  EXPECT_EQ(Live(v1::STAGE_PROFILE).slot.slot, "p0-1");
}

TEST_F(DispatcherTest, OnlySlotsThatSuitAreUsed) {
  Step(SlotsChanged{{CpuSlot("cpu0", {0}), DeviceSlot("p1", {1}, "w", "llvm -mcpu=y")}, ""});
  Submit(1);
  Import(1);
  EXPECT_FALSE(IsLive(v1::STAGE_PROPOSE)) << "nothing is proposed while no device can measure it";
  EXPECT_THAT(DescribeJob(dispatcher_, job(), now_),
              "no device with target llvm -mcpu=x, 1 thread; nearest: worker w has llvm -mcpu=y, 1 "
              "thread, device key key");
  Step(SlotsChanged{{CpuSlot("cpu0", {0}), DeviceSlot("p1", {1})}, ""});
  EXPECT_TRUE(IsLive(v1::STAGE_PROPOSE));
  EXPECT_EQ(job().params.device_key, "key") << "records are comparable within one key only";
}

TEST_F(DispatcherTest, ForAGpuTheFirstRoundsAreBuiltBeforeThereIsOne) {
  Step(SlotsChanged{{CpuSlot("cpu0", {0}), DeviceSlot("p1", {1}, "w", "llvm -mcpu=y")}, ""});
  Submit(1, 8, 2, /*threads=*/0);
  Import(2);
  for (int stages = 0; stages < 4; ++stages) {
    if (IsLive(v1::STAGE_PROPOSE)) {
      End(v1::STAGE_PROPOSE, Proposed{2, false});
      continue;
    }
    for (CandidateId id : Live(v1::STAGE_BUILD).candidates) Built(id);
    End(v1::STAGE_BUILD);
  }
  EXPECT_TRUE(dispatcher_.live().empty());
  EXPECT_TRUE(job().queue.empty());
  EXPECT_EQ(DescribeJob(dispatcher_, job(), now_),
            "waiting: no device of key llvm -mcpu=x; start heddle-worker --profile llvm:0 on such "
            "a host");
  SlotInfo first = DeviceSlot("cuda0", {}, "a"), second = DeviceSlot("cuda0", {}, "b");
  second.device_key = "another";
  Step(SlotsChanged{{CpuSlot("cpu0", {0}), first, second}, ""});
  EXPECT_EQ(job().params.device_key, "key");
  EXPECT_EQ(Live(v1::STAGE_PROFILE).slot.worker, "a");
  EXPECT_THAT(dispatcher_.live(), SizeIs(1)) << "the other is of another key";
}

TEST_F(DispatcherTest, CudaIsBuiltWhereThereIsACompiler) {
  SlotInfo plain = CpuSlot("cpu0", {0}, "a"), compiles = CpuSlot("cpu0", {0}, "b");
  plain.builds = {"llvm"};
  Step(SlotsChanged{{plain}, ""});
  JobParams params;
  params.target = "cuda -arch=sm_90";
  params.threads = 0;
  params.trials_per_task = 4;
  params.batch = 2;
  Step(JobSubmitted{JobId{1}, params});
  Import(1);
  End(v1::STAGE_PROPOSE, Proposed{2, false});
  EXPECT_TRUE(dispatcher_.live().empty());
  EXPECT_THAT(DescribeJob(dispatcher_, job(), now_),
              HasSubstr("waiting: no worker has a compiler for cuda -arch=sm_90; start"));
  // A job for CPUs is built there, a device alone changes nothing.
  Submit(2);
  EXPECT_TRUE(IsLive(v1::STAGE_IMPORT));
  Step(SlotsChanged{{plain, compiles, DeviceSlot("cuda0", {}, "c", params.target)}, ""});
  EXPECT_EQ(Live(v1::STAGE_BUILD).slot.worker, "b");
  EXPECT_THAT(Live(v1::STAGE_BUILD).candidates, SizeIs(2));
}

TEST_F(DispatcherTest, EachKindIsBuiltWhereItsCompilerIs) {
  SlotInfo plain = CpuSlot("cpu0", {0}, "a"), one = CpuSlot("cpu0", {0}, "b"),
           other = CpuSlot("cpu0", {0}, "c");
  plain.builds = {};  // a worker that lists nothing builds for CPUs
  one.builds = {"llvm", "one"};
  other.builds = {"llvm", "other"};
  Step(SlotsChanged{{plain, one, other, DeviceSlot("p1", {1}, "d")}, ""});
  const std::pair<const char*, std::string> where[] = {
      {"one -x", "b"}, {"other -x", "c"}, {"on -x", ""}, {kTarget, "a"}};
  int64_t id = 0;
  for (const auto& [target, worker] : where) {
    JobParams params;
    params.target = target;
    params.threads = target == kTarget ? 1 : 0;
    params.trials_per_task = params.batch = 1;
    Step(JobSubmitted{JobId{++id}, params});
    Import(1);
    End(v1::STAGE_PROPOSE, Proposed{1, false});
    ASSERT_EQ(IsLive(v1::STAGE_BUILD), !worker.empty()) << target;
    if (worker.empty()) {
      EXPECT_THAT(DescribeJob(dispatcher_, job(id), now_),
                  HasSubstr("no worker has a compiler for on -x"));
      continue;
    }
    EXPECT_EQ(Live(v1::STAGE_BUILD).slot.worker, worker) << target;
    Built(Live(v1::STAGE_BUILD).candidates[0]);
    End(v1::STAGE_BUILD);
  }
  // What waits for a compiler starts once there is one.
  plain.builds = {"llvm", "on"};
  Step(SlotsChanged{{plain, one, other}, ""});
  EXPECT_EQ(Live(v1::STAGE_BUILD).slot.worker, "a");
  EXPECT_EQ(Live(v1::STAGE_BUILD).job, JobId{3});
}

TEST_F(DispatcherTest, ReasonsNameWhatIsMissing) {
  Submit(1);
  EXPECT_THAT(DescribeJob(dispatcher_, job(), now_), HasSubstr("tracker"));
  Step(SlotsChanged{{}, ""});
  EXPECT_THAT(DescribeJob(dispatcher_, job(), now_), HasSubstr("no worker is registered"));
  Step(SlotsChanged{{DeviceSlot("p1", {1})}, ""});
  EXPECT_THAT(DescribeJob(dispatcher_, job(), now_), HasSubstr("no worker offers a cpu slot"));
  SlotInfo held = CpuSlot("cpu0", {0});
  held.usable = false;
  held.why_not = "held by ann";
  Step(SlotsChanged{{held}, ""});
  EXPECT_THAT(DescribeJob(dispatcher_, job(), now_), HasSubstr("held by ann"));
}

TEST_F(DispatcherTest, SlotsOfOthersTakeTheirCoresAlong) {
  SlotInfo foreign = DeviceSlot("p0", {0});
  foreign.foreign = true;
  foreign.usable = false;
  Step(SlotsChanged{{CpuSlot("cpu0", {0}), foreign}, ""});
  Submit(1);
  EXPECT_TRUE(started_.empty());
}

TEST_F(DispatcherTest, AHopelessTaskIsGivenUpAndTheJobFailsWithIt) {
  TwoCores();
  Submit(1, 64, 16);
  Import(1);
  End(v1::STAGE_PROPOSE, Proposed{16, false});
  Round(v1::OUTCOME_RUN_CRASH);
  ASSERT_TRUE(std::holds_alternative<Failed>(job().phase));
  EXPECT_EQ(std::get<Failed>(job().phase).fault.kind, v1::FAULT_CANDIDATE);
  EXPECT_EQ(job().tasks[0].trials, 16);
}

TEST_F(DispatcherTest, KnownRecordsReplaceTrials) {
  TwoCores();
  Submit(1, 8);
  Import(2, 8, 8);
  EXPECT_TRUE(IsLive(v1::STAGE_COMPILE)) << "at once";
  End(v1::STAGE_COMPILE);
  EXPECT_EQ(DescribeJob(dispatcher_, job(), now_),
            "done: reused 16 records for 2 of 2 tasks, no new trials");
}

TEST_F(DispatcherTest, SomeKnownRecordsWarmTheSearch) {
  TwoCores();
  Submit(1, 8, 16);
  Import(1, 5, 4);
  EXPECT_TRUE(IsLive(v1::STAGE_UPDATE)) << "learned before the first proposal";
  End(v1::STAGE_UPDATE);
  EXPECT_EQ(Live(v1::STAGE_PROPOSE).count, 3);
}

TEST_F(DispatcherTest, PausedJobsStartNothingAndGoOn) {
  TwoCores();
  Submit(1);
  Import(1);
  Step(PauseRequested{JobId{1}, "lunch"});
  End(v1::STAGE_PROPOSE, Proposed{2, false});
  EXPECT_TRUE(dispatcher_.live().empty());
  EXPECT_EQ(DescribeJob(dispatcher_, job(), now_), "paused: lunch");
  Step(ResumeRequested{JobId{1}});
  EXPECT_TRUE(IsLive(v1::STAGE_BUILD));
}

TEST_F(DispatcherTest, APriorityCountsOnlyWhileTheJobGoesOn) {
  TwoCores();
  Submit(1);
  Step(PriorityRequested{JobId{1}, 7});
  EXPECT_EQ(job().params.priority, 7);
  Step(CancelRequested{JobId{1}, ""});
  EXPECT_TRUE(Step(PriorityRequested{JobId{1}, 3}).changes.empty());
  EXPECT_TRUE(Step(PriorityRequested{JobId{9}, 3}).changes.empty()) << "no such job";
  EXPECT_EQ(job().params.priority, 7);
}

TEST_F(DispatcherTest, CancelEndsRunningStages) {
  TwoCores();
  Submit(1);
  Import(1);
  EXPECT_EQ(Count<CancelStage>(Step(CancelRequested{JobId{1}, ""})), 1);
  EXPECT_THAT(dispatcher_.live(), SizeIs(1)) << "the slot is taken until the stage has ended";
  Break(v1::STAGE_PROPOSE);
  EXPECT_TRUE(dispatcher_.live().empty());
}

TEST_F(DispatcherTest, NothingStartsWhileTheStoreTakesNoWrites) {
  TwoCores();
  Step(StoreBlocked{"the disk is full"});
  Submit(1);
  EXPECT_TRUE(started_.empty());
  EXPECT_EQ(DescribeJob(dispatcher_, job(), now_), "the disk is full");
  Step(StoreBlocked{""});
  EXPECT_TRUE(IsLive(v1::STAGE_IMPORT));
}

TEST_F(DispatcherTest, FetchCompilesOnDemandBesideTheJob) {
  TwoCores();
  Submit(1);
  auto refused = Step(FetchRequested{FetchId{1}, JobId{1}});
  EXPECT_EQ(Count<EndFetch>(refused), 1) << "not imported yet";
  Import(1);
  Step(PauseRequested{JobId{1}, ""});
  End(v1::STAGE_PROPOSE, Proposed{2, false});
  Step(FetchRequested{FetchId{2}, JobId{1}});
  EXPECT_EQ(Live(v1::STAGE_COMPILE).fetch, FetchId{2});
  EXPECT_EQ(Count<EndFetch>(End(v1::STAGE_COMPILE)), 1);
  EXPECT_TRUE(std::holds_alternative<Tuning>(job().phase));
}

TEST_F(DispatcherTest, AJobThatIsOverIsForgottenOnceNothingNeedsIt) {
  TwoCores();
  Submit(1);
  EXPECT_FALSE(dispatcher_.Forget(JobId{1})) << "it is not over";
  EXPECT_FALSE(dispatcher_.Forget(JobId{2})) << "there is none";
  Import(1);
  Step(CancelRequested{JobId{1}, ""});
  EXPECT_FALSE(dispatcher_.Forget(JobId{1})) << "its stage still runs";
  End(v1::STAGE_PROPOSE, Proposed{4, false});
  Step(FetchRequested{FetchId{1}, JobId{1}});
  EXPECT_FALSE(dispatcher_.Forget(JobId{1})) << "somebody waits for a module of it";
  End(v1::STAGE_COMPILE);
  const Job kept = job();
  EXPECT_TRUE(dispatcher_.Forget(JobId{1}));
  EXPECT_EQ(dispatcher_.FindJob(JobId{1}), nullptr);
  // Neither other jobs nor late events ask for it.
  Submit(2, 4, 4);
  Import(1);
  for (const Event& late :
       {Event(CancelRequested{JobId{1}, ""}), Event(PauseRequested{JobId{1}, ""}),
        Event(ResumeRequested{JobId{1}}), Event(JobCollected{JobId{1}, 1})})
    Step(late);
  EXPECT_EQ(Count<EndFetch>(Step(FetchRequested{FetchId{2}, JobId{1}})), 1) << "it is unknown";
  Wait(absl::Hours(1));
  End(v1::STAGE_PROPOSE, Proposed{4, false});
  Round();
  End(v1::STAGE_COMPILE);
  EXPECT_TRUE(std::holds_alternative<Done>(job(2).phase));
  dispatcher_.Restore(kept);
  Step(FetchRequested{FetchId{3}, JobId{1}});
  EXPECT_EQ(Live(v1::STAGE_COMPILE).fetch, FetchId{3});
}

TEST_F(DispatcherTest, BuildsAreSharedOutAmongFreeSlots) {
  Step(SlotsChanged{
      {CpuSlot("cpu0", {0}), CpuSlot("cpu1", {1}), CpuSlot("cpu2", {2}), DeviceSlot("p3", {3})},
      ""});
  Submit(1, 9, 9);
  Import(1);
  End(v1::STAGE_PROPOSE, Proposed{9, false});
  std::vector<size_t> sizes;
  for (const auto& [id, stage] : dispatcher_.live()) sizes.push_back(stage.candidates.size());
  EXPECT_THAT(sizes, ::testing::ElementsAre(3, 3, 3));
}

}  // namespace
}  // namespace heddle::scheduler
