// The dispatcher when machines, messages or candidates go wrong: what is tried again, what is
// blamed.
#include "tests/scheduler/core/dispatcher_fixture.h"

namespace heddle::scheduler {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

TEST_F(DispatcherTest, ARefusedLeaseCostsNoAttemptAndBacksOff) {
  TwoCores();
  Submit(1);
  for (int i = 0; i < 20; ++i) {
    Break(v1::STAGE_IMPORT, false);
    EXPECT_TRUE(dispatcher_.live().empty());
    const absl::Time wake = dispatcher_.NextWake(now_);
    ASSERT_LT(wake, now_ + absl::Seconds(11));
    Wait(wake - now_);
  }
  Import(1);
  EXPECT_FALSE(job().final());
}

TEST_F(DispatcherTest, FaultsOfTheMachineryFailNoJob) {
  TwoCores();
  Submit(1);
  for (const v1::StageKind kind : {v1::STAGE_IMPORT, v1::STAGE_PROPOSE, v1::STAGE_COMPILE}) {
    for (int i = 0; i < 10; ++i) {
      Break(kind);
      EXPECT_FALSE(IsLive(kind)) << "not at once";
      EXPECT_THAT(DescribeJob(dispatcher_, job(), now_), HasSubstr("it broke"));
      EXPECT_LE(dispatcher_.NextWake(now_), now_ + absl::Seconds(10)) << "the backoff has a limit";
      Wait(absl::Seconds(10));
    }
    if (kind == v1::STAGE_IMPORT) Import(1);
    if (kind != v1::STAGE_PROPOSE) continue;
    End(v1::STAGE_PROPOSE, Proposed{1, true});
    Round();
  }
  End(v1::STAGE_COMPILE);
  EXPECT_TRUE(std::holds_alternative<Done>(job().phase));
}

TEST_F(DispatcherTest, AnInterruptionCostsNoAttempt) {
  TwoCores();
  Submit(1);
  Import(1);
  End(v1::STAGE_PROPOSE, Proposed{2, false});
  Built(CandidateId{1});
  Step(CandidateStarted{Live(v1::STAGE_PROFILE).attempt, CandidateId{1}});
  for (const v1::StageKind kind : {v1::STAGE_PROFILE, v1::STAGE_BUILD}) {
    for (int i = 0; i < 10; ++i) {
      const auto decisions = Step(StageFinished{
          Live(kind).attempt, {v1::FAULT_INFRASTRUCTURE, "the lease was lost"}, true, {}, true});
      EXPECT_EQ(Count<SetAttempts>(decisions), 0);
      Wait(absl::Seconds(10));
    }
  }
  EXPECT_EQ(job().tasks[0].trials, 0);
}

TEST_F(DispatcherTest, ARefusalIsTheReasonOfTheWait) {
  Step(SlotsChanged{{CpuSlot("cpu0", {0})}, ""});
  Submit(1);
  Break(v1::STAGE_IMPORT, false);
  EXPECT_EQ(DescribeJob(dispatcher_, job(), now_),
            "import: waiting for a cpu slot: w/cpu0 was refused: it broke");
}

TEST_F(DispatcherTest, AUserFaultFailsTheJobWithItsMessage) {
  TwoCores();
  Submit(1);
  Step(StageFinished{
      Live(v1::STAGE_IMPORT).attempt, {v1::FAULT_USER, "not an ONNX file"}, true, {}});
  EXPECT_EQ(DescribeJob(dispatcher_, job(), now_), "not an ONNX file");
}

TEST_F(DispatcherTest, OnlyTheCandidateBeingMeasuredIsSuspected) {
  TwoCores();
  Submit(1);
  Import(1);
  End(v1::STAGE_PROPOSE, Proposed{3, false});
  for (int64_t id : {1, 2, 3}) Built(CandidateId{id});
  End(v1::STAGE_BUILD);
  for (int i = 0; i < 3; ++i) {
    Step(CandidateStarted{Live(v1::STAGE_PROFILE).attempt, CandidateId{2}});
    auto decisions = Break(v1::STAGE_PROFILE);
    EXPECT_EQ(Count<FinishCandidate>(decisions), i == 2 ? 1 : 0);
    Wait(absl::Seconds(10));
  }
  EXPECT_EQ(job().tasks[0].trials, 1) << "the poisonous one is lost";
  EXPECT_EQ(job().tasks[0].open.at(CandidateId{1}).attempts, 0);
  EXPECT_THAT(Live(v1::STAGE_PROFILE).candidates, SizeIs(2)) << "measured again, not built again";
}

TEST_F(DispatcherTest, LateAndRepeatedAnswersAreIgnored) {
  TwoCores();
  Submit(1);
  Import(1);
  End(v1::STAGE_PROPOSE, Proposed{2, false});
  Built(CandidateId{1});
  const AttemptId profile = Live(v1::STAGE_PROFILE).attempt;
  const Event answer = CandidateProfiled{profile, CandidateId{1}, v1::OUTCOME_OK, ""};
  EXPECT_EQ(Count<FinishCandidate>(Step(answer)), 1);
  EXPECT_EQ(Count<FinishCandidate>(Step(answer)), 0);
  const Event end = StageFinished{profile, {}, true, {}};
  Step(end);
  Step(end);
  EXPECT_EQ(
      Count<FinishCandidate>(Step(CandidateProfiled{profile, CandidateId{2}, v1::OUTCOME_OK, ""})),
      0);
  EXPECT_EQ(job().tasks[0].trials, 1);
}

}  // namespace
}  // namespace heddle::scheduler
