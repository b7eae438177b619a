// Tasks that jobs have in common: who measures what, and what the others know of it.
#include "absl/strings/str_cat.h"
#include "tests/scheduler/core/dispatcher_fixture.h"

namespace heddle::scheduler {
namespace {

using SharingTest = RoundsTest;

TEST_F(SharingTest, ATaskOfTwoJobsIsTunedOnce) {
  TwoCores();
  JobParams params = Params();
  params.allocation = Allocation::kUniform;
  Start(1, params, {{"a"}});
  Step(JobSubmitted{JobId{2}, params});
  // Whoever is asked: the CPU slot is used by job 1's propose first.
  End(v1::STAGE_PROPOSE, Proposed{4, false});
  End(v1::STAGE_IMPORT, ImportOf({{"a", 3}}, "key"));
  Round();
  EXPECT_EQ(job(2).tasks[0].known.total, 4);
  EXPECT_EQ(job(2).tasks[0].budget, 4);
  End(v1::STAGE_UPDATE);
  RoundAt(700);
  EXPECT_TRUE(Compiling(1));
  EXPECT_TRUE(Compiling(2));
  EXPECT_EQ(job(1).tasks[0].trials + job(2).tasks[0].trials, 8);
  EXPECT_EQ(job(1).tasks[0].best_ns, job(2).tasks[0].best_ns);
}

TEST_F(SharingTest, WhenOneIsCancelledTheOtherGoesOnWithWhatIsKnown) {
  TwoCores();
  JobParams params = Params();
  params.allocation = Allocation::kUniform;
  Start(1, params, {{"a"}});
  End(v1::STAGE_PROPOSE, Proposed{4, false});
  Step(JobSubmitted{JobId{2}, params});
  const StartStage build = Live(v1::STAGE_BUILD);
  for (CandidateId id : build.candidates) Built(id);
  Step(StageFinished{build.attempt, {}, true, {}});
  End(v1::STAGE_IMPORT, ImportOf({{"a"}}, "key"));
  Profiled(CandidateId{1});
  Profiled(CandidateId{2});
  EXPECT_FALSE(IsLive(v1::STAGE_UPDATE)) << "job 2 waits for job 1's round";
  Step(CancelRequested{JobId{1}, ""});
  EXPECT_EQ(Live(v1::STAGE_UPDATE).job, JobId{2}) << "the known records are learned";
  End(v1::STAGE_UPDATE);
  EXPECT_EQ(Live(v1::STAGE_PROPOSE).count, 4);
  EXPECT_EQ(job(2).tasks[0].remaining(), 6);
}

TEST_F(SharingTest, TheSearchStateIsTakenOver) {
  TwoCores();
  JobParams params = Params(12);
  params.allocation = Allocation::kUniform;
  Start(1, params, {{"a"}, {"b"}});
  RoundAt(100);  // of job 1's first task; its second is next
  ASSERT_EQ(Live(v1::STAGE_PROPOSE).task->value, 1);
  Step(JobSubmitted{JobId{2}, params});
  End(v1::STAGE_PROPOSE, Proposed{4, false});
  const auto decisions = End(v1::STAGE_IMPORT, ImportOf({{"a"}}, "key"));
  ASSERT_EQ(Count<TakeSearch>(decisions), 1) << "nobody has a round of that task in flight";
  EXPECT_EQ(job(2).tasks[0].known.total, 4);
  EXPECT_TRUE(std::holds_alternative<WantsPropose>(job(2).tasks[0].phase) ||
              std::holds_alternative<Proposing>(job(2).tasks[0].phase));
}

TEST_F(SharingTest, ASearchThatHasNotLearnedIsNotTakenOver) {
  TwoCores();
  JobParams params = Params(12);
  params.allocation = Allocation::kUniform;
  Start(1, params, {{"a"}, {"b"}});
  End(v1::STAGE_PROPOSE, Proposed{4, false});
  Round();
  for (int i = 0; i < 10 && IsLive(v1::STAGE_UPDATE); ++i) {
    Break(v1::STAGE_UPDATE);
    Wait(absl::Hours(1));
  }
  ASSERT_EQ(Live(v1::STAGE_PROPOSE).task->value, 1);
  Step(JobSubmitted{JobId{2}, params});
  End(v1::STAGE_PROPOSE, Proposed{4, false});
  const auto decisions = End(v1::STAGE_IMPORT, ImportOf({{"a"}}, "key"));
  EXPECT_EQ(Count<TakeSearch>(decisions), 0);
  EXPECT_TRUE(job(2).tasks[0].unlearned.known) << "it learns the records itself";
}

TEST_F(SharingTest, APausedJobHoldsNobodyBack) {
  TwoCores();
  JobParams params = Params();
  Start(1, params, {{"a"}});
  End(v1::STAGE_PROPOSE, Proposed{4, false});
  Step(JobSubmitted{JobId{2}, params});
  const StartStage build = Live(v1::STAGE_BUILD);
  Step(StageFinished{build.attempt, {v1::FAULT_INFRASTRUCTURE, "x"}, true, {}});
  End(v1::STAGE_IMPORT, ImportOf({{"a"}}, "key"));
  EXPECT_FALSE(InFlight(job(2).tasks[0]));
  Step(PauseRequested{JobId{1}, ""});
  EXPECT_TRUE(InFlight(job(2).tasks[0]));
}

TEST_F(SharingTest, JobsWithForceShareNothing) {
  TwoCores();
  JobParams params = Params();
  params.force = true;
  Start(1, params, {{"a", 1, {8, 8, 10}}});
  RoundAt(5);
  Step(JobSubmitted{JobId{2}, Params()});
  End(v1::STAGE_PROPOSE, Proposed{4, false});
  End(v1::STAGE_IMPORT, ImportOf({{"a"}}, "key"));
  EXPECT_EQ(job(2).tasks[0].known.total, 0);
  Round();
  EXPECT_EQ(job(2).tasks[0].known.total, 0);
}

// A GPU's first rounds are built before there is one. No job knows its device key yet but the
// second, which asks for one: any of them may come to measure for any other.
TEST_F(SharingTest, EqualTasksAreBegunOnceBeforeThereIsADevice) {
  Step(SlotsChanged{{CpuSlot("cpu0", {0}), CpuSlot("cpu1", {1})}, ""});
  JobParams params = Params();
  params.target = params.record_target = "cuda -arch=sm_90";
  params.threads = 0;
  auto submit = [&](int64_t id, const std::string& key) {
    Step(JobSubmitted{JobId{id}, params});
    End(v1::STAGE_IMPORT, ImportOf({{"a"}}, key));
  };
  submit(1, "");
  EXPECT_TRUE(InFlight(job(1).tasks[0]));
  submit(2, "key");
  submit(3, "");
  for (int64_t id : {2, 3}) EXPECT_FALSE(InFlight(job(id).tasks[0])) << id;
  End(v1::STAGE_PROPOSE, Proposed{4, false});
  const std::vector<CandidateId> round = Live(v1::STAGE_BUILD).candidates;
  Built(round[0]);
  Built(round[1], v1::OUTCOME_BUILD_ERROR);
  EXPECT_EQ(job(3).tasks[0].known.total, 0) << "what fails without a device is no record of one";
  SlotInfo gpu = DeviceSlot("cuda0", {}, "g", params.target);
  Step(SlotsChanged{{CpuSlot("cpu0", {0}), CpuSlot("cpu1", {1}), gpu}, ""});
  for (int64_t id : {1, 3}) EXPECT_EQ(job(id).params.device_key, "key") << id;
  for (int64_t id : {2, 3}) {
    EXPECT_FALSE(InFlight(job(id).tasks[0])) << id;
    EXPECT_EQ(job(id).tasks[0].known.total, 1) << id;
  }
  Profiled(round[0]);
  for (int64_t id : {2, 3}) EXPECT_EQ(job(id).tasks[0].known.total, 2) << id;
}

// Six records of the device that comes, where eight trials are wanted: what is being built is
// measured, and nothing more. The answer may come when much has happened.
TEST_F(SharingTest, WhatIsOnRecordCountsOnceThereIsADevice) {
  for (const int on_record : {0, 6}) {
    const int64_t id = on_record + 1;
    Step(SlotsChanged{{CpuSlot("cpu0", {0})}, ""});
    JobParams params = Params();
    params.target = params.record_target = absl::StrCat("cuda -arch=sm_", id);
    params.threads = 0;
    Step(JobSubmitted{JobId{id}, params});
    End(v1::STAGE_IMPORT, ImportOf({{"a"}}, ""));
    End(v1::STAGE_PROPOSE, Proposed{4, false});
    answer_finds_ = false;
    const SlotInfo gpu = DeviceSlot("cuda0", {}, "g", params.target);
    const Event come = SlotsChanged{{CpuSlot("cpu0", {0}), gpu}, ""};
    EXPECT_EQ(Count<FindRecords>(Step(come)), 1);
    const std::vector<CandidateId> round = Live(v1::STAGE_BUILD).candidates;
    EXPECT_EQ(Count<FindRecords>(Built(round[0])), 0) << "it is asked once";
    EXPECT_EQ(job(id).params.device_key, "");
    EXPECT_FALSE(IsLive(v1::STAGE_PROFILE)) << "a record has a device key";
    Step(RecordsFound{JobId{id}, "key", {{on_record, on_record, 100}}});
    EXPECT_EQ(job(id).params.device_key, "key");
    EXPECT_EQ(job(id).tasks[0].known.total, on_record);
    EXPECT_EQ(job(id).tasks[0].best_ns, on_record > 0 ? 100 : 0);
    EXPECT_TRUE(IsLive(v1::STAGE_PROFILE));
    for (size_t i = 1; i < round.size(); ++i) Built(round[i]);
    Step(StageFinished{Live(v1::STAGE_BUILD).attempt, {}, true, {}});
    for (CandidateId candidate : round) Profiled(candidate);
    End(v1::STAGE_PROFILE);
    answer_finds_ = true;
    EXPECT_EQ(Compiling(id), on_record > 0);
    EXPECT_EQ(job(id).tasks[0].trials, 4);
    Step(CancelRequested{JobId{id}, ""});
    for (v1::StageKind kind : {v1::STAGE_COMPILE, v1::STAGE_UPDATE}) {
      if (IsLive(kind)) End(kind);
    }
  }
}

// While it was looked up what is on record, the device has left, and one of another key has come.
TEST_F(SharingTest, ADeviceThatHasLeftMeanwhilePinsNothing) {
  JobParams params = Params();
  Step(SlotsChanged{{CpuSlot("cpu0", {0})}, ""});
  Step(JobSubmitted{JobId{1}, params});
  answer_finds_ = false;
  End(v1::STAGE_IMPORT, ImportOf({{"a"}}, ""));
  SlotInfo device = DeviceSlot("p1", {1});
  EXPECT_EQ(Count<FindRecords>(Step(SlotsChanged{{CpuSlot("cpu0", {0}), device}, ""})), 1);
  device.device_key = "other";
  Step(SlotsChanged{{CpuSlot("cpu0", {0}), device}, ""});
  const auto decisions = Step(RecordsFound{JobId{1}, "key", {{8, 8, 100}}});
  EXPECT_EQ(job(1).params.device_key, "");
  EXPECT_EQ(job(1).tasks[0].known.total, 0);
  EXPECT_EQ(Count<FindRecords>(decisions), 1) << "of the other key";
  Step(RecordsFound{JobId{1}, "other", {{8, 8, 100}}});
  EXPECT_EQ(job(1).params.device_key, "other");
  EXPECT_TRUE(Compiling(1)) << "all is known";
}

// What was granted before the device came is not lost with what is known of its key.
class GrantTest : public SharingTest, public ::testing::WithParamInterface<bool> {};

TEST_P(GrantTest, OutlastsTheComingOfTheDevice) {
  const bool proposing = GetParam();
  Step(SlotsChanged{{CpuSlot("cpu0", {0}), CpuSlot("cpu1", {1})}, ""});
  JobParams params = Params();
  params.target = params.record_target = "cuda -arch=sm_90";
  params.threads = 0;
  Step(JobSubmitted{JobId{1}, params});
  End(v1::STAGE_IMPORT, ImportOf({{"a"}}, ""));
  Step(JobSubmitted{JobId{2}, params});
  End(v1::STAGE_IMPORT, ImportOf({{"a", 1, {4, 4, 100}}}, "key"));
  ASSERT_EQ(Live(v1::STAGE_PROPOSE).job, JobId{1});
  ASSERT_EQ(job(1).tasks[0].budget, 4);
  if (!proposing) Break(v1::STAGE_PROPOSE);  // and it is tried again in a while
  SlotInfo gpu = DeviceSlot("cuda0", {}, "g", params.target);
  Step(SlotsChanged{{CpuSlot("cpu0", {0}), CpuSlot("cpu1", {1}), gpu}, ""});
  EXPECT_EQ(job(1).params.device_key, "key");
  EXPECT_EQ(job(1).tasks[0].known.total, 4);
  EXPECT_EQ(job(1).tasks[0].budget, 4);
  if (!proposing) Wait(absl::Seconds(10));
  ASSERT_EQ(Live(v1::STAGE_PROPOSE).job, JobId{1});
  EXPECT_EQ(Live(v1::STAGE_PROPOSE).count, 4);
  End(v1::STAGE_PROPOSE, Proposed{4, false});
  EXPECT_EQ(job(1).tasks[0].open.size(), 4u);
  EXPECT_FALSE(job(1).tasks[0].exhausted);
}
INSTANTIATE_TEST_SUITE_P(ProposingOrNot, GrantTest, ::testing::Bool());

TEST_F(SharingTest, WhoWaitsForNoPartnerGoesOnOnceItIsKnown) {
  Step(SlotsChanged{{CpuSlot("cpu0", {0}), CpuSlot("cpu1", {1})}, ""});
  JobParams params = Params();
  params.target = params.record_target = "cuda -arch=sm_90";
  params.threads = 0;
  for (int64_t id : {1, 2}) {
    Step(JobSubmitted{JobId{id}, params});
    End(v1::STAGE_IMPORT, ImportOf({{"a"}}, id == 2 ? "other" : ""));
  }
  EXPECT_FALSE(InFlight(job(2).tasks[0]));
  SlotInfo gpu = DeviceSlot("cuda0", {}, "g", params.target);
  Step(SlotsChanged{{CpuSlot("cpu0", {0}), CpuSlot("cpu1", {1}), gpu}, ""});
  EXPECT_EQ(job(1).params.device_key, "key");
  EXPECT_TRUE(InFlight(job(2).tasks[0])) << "its records are of another key";
}

}  // namespace
}  // namespace heddle::scheduler
