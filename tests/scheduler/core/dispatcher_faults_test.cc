// The dispatcher when machines, messages or candidates go wrong: what is tried again, what is
// blamed.
#include "absl/strings/str_cat.h"
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

// A trial that keeps its worker from renewing the lease is not tried for ever.
TEST_F(DispatcherTest, InterruptionsOfTheSameTrialHaveALimit) {
  TwoCores();
  Submit(1);
  Import(1);
  End(v1::STAGE_PROPOSE, Proposed{2, false});
  Built(CandidateId{1});
  const int limit = DispatcherOptions().max_interruptions;
  for (int i = 1; i <= limit; ++i) {
    const AttemptId profile = Live(v1::STAGE_PROFILE).attempt;
    Step(CandidateStarted{profile, CandidateId{1}});
    const auto decisions = Step(
        StageFinished{profile, {v1::FAULT_INFRASTRUCTURE, "the lease was lost"}, true, {}, true});
    EXPECT_EQ(Count<SetAttempts>(decisions), 0);
    ASSERT_EQ(Count<FinishCandidate>(decisions), i == limit ? 1 : 0);
    if (i == limit) {
      EXPECT_EQ(All<FinishCandidate>(decisions)[0].message,
                absl::StrCat("interrupted ", limit, " times: the lease was lost"));
    }
    Wait(absl::Seconds(10));
  }
}

// Workers that fall silent until their leases have ended.
class SilenceTest : public DispatcherTest {
 protected:
  void List(const std::string& boot) {
    std::vector<SlotInfo> slots;
    if (!boot.empty()) slots = {CpuSlot("cpu0", {0}), DeviceSlot("p1", {1})};
    for (SlotInfo& slot : slots) slot.boot = boot;
    latest_ = Step(SlotsChanged{slots, ""});
  }
  // Both candidates are built, and on their way to be measured.
  void Begin() {
    List("b1");
    Submit(1);
    Import(1);
    End(v1::STAGE_PROPOSE, Proposed{2, false});
    for (int64_t id : {1, 2}) Built(CandidateId{id});
    End(v1::STAGE_BUILD);
  }
  void Measure(int64_t candidate) {
    Step(CandidateStarted{Live(v1::STAGE_PROFILE).attempt, CandidateId{candidate}});
  }
  void LoseLease() {
    StageFinished end{Live(v1::STAGE_PROFILE).attempt,
                      {v1::FAULT_INFRASTRUCTURE, "the lease was lost"},
                      true,
                      {},
                      true};
    end.silent = true;
    latest_ = Step(end);
  }
  int Attempts(int64_t candidate) {
    return job().tasks[0].open.at(CandidateId{candidate}).attempts;
  }

  Decisions latest_;
};

TEST_F(SilenceTest, AWorkerThatWasStoppedGivesTheAttemptBack) {
  Begin();
  for (int i = 0; i < 5; ++i) {
    Measure(1);
    List("");
    LoseLease();
    EXPECT_EQ(Attempts(1), 1) << "it may have ended the machine";
    EXPECT_EQ(Attempts(2), 0) << "it had not begun";
    List("b1");
    EXPECT_EQ(Attempts(1), 0);
    ASSERT_EQ(Count<SetAttempts>(latest_), 1) << "so that a restart knows it as well";
    EXPECT_EQ(All<SetAttempts>(latest_)[0].attempts, 0);
    Wait(absl::Seconds(10));
  }
  EXPECT_EQ(job().tasks[0].trials, 0);
}

TEST_F(SilenceTest, ATrialThatEndsMachinesIsGivenUp) {
  Begin();
  for (int i = 1; i <= 3; ++i) {
    Measure(1);
    List("");
    LoseLease();
    EXPECT_EQ(Count<FinishCandidate>(latest_), i == 3 ? 1 : 0);
    List(absl::StrCat("b", i + 1));
    Wait(absl::Seconds(10));
  }
  EXPECT_EQ(job().tasks[0].trials, 1);
  EXPECT_EQ(Attempts(2), 0);
}

// The scheduler itself was stopped, or the tracker, or the network between it and the worker.
TEST_F(SilenceTest, AWorkerThatStaysListedGivesTheAttemptBack) {
  Begin();
  for (int i = 0; i < 5; ++i) {
    Measure(1);
    LoseLease();
    EXPECT_EQ(Attempts(1), 1) << "the tracker may not know yet";
    List("b1");
    EXPECT_EQ(Attempts(1), 1) << "nor does an old list tell";
    Wait(absl::Minutes(1));
    EXPECT_EQ(Attempts(1), 0);
  }
  EXPECT_EQ(job().tasks[0].trials, 0);
}

// The connection to a process that crashes breaks at once, and the tracker notices later.
TEST_F(SilenceTest, AProcessThatIsListedForAWhileIsNotBelievedToLive) {
  Begin();
  for (int i = 1; i <= 3; ++i) {
    Measure(1);
    LoseLease();
    Wait(absl::Seconds(10));
    EXPECT_EQ(Count<FinishCandidate>(latest_), i == 3 ? 1 : 0);
    List("");
    Wait(absl::Minutes(1));
    List(absl::StrCat("b", i + 1));
    if (i < 3) {
      EXPECT_EQ(Attempts(1), i);
    }
  }
  EXPECT_EQ(job().tasks[0].trials, 1);
}

TEST_F(SilenceTest, WithoutATrialInProgressNobodyIsCharged) {
  Begin();
  for (int i = 0; i < 5; ++i) {
    List("");
    LoseLease();
    EXPECT_EQ(Count<SetAttempts>(latest_), 0);
    List("b2");
    Wait(absl::Seconds(10));
  }
  EXPECT_EQ(job().tasks[0].trials, 0);
}

// A machine that crashes at once never tells what was begun on it.
TEST_F(SilenceTest, WhatEndsMachinesBeforeItIsSaidToBeginIsNotTriedForEver) {
  Begin();
  const int limit = DispatcherOptions().max_interruptions;
  for (int i = 0; i < 2 * limit;
       ++i) {  // while the worker is listed, it is no machine that crashed
    LoseLease();
    Wait(absl::Minutes(1));
  }
  EXPECT_EQ(job().tasks[0].trials, 0);
  for (int i = 1; i <= limit; ++i) {
    List("");
    LoseLease();
    EXPECT_EQ(Count<FinishCandidate>(latest_) > 0, i == limit);
    List(absl::StrCat("c", i));
    if (i < limit) Wait(absl::Minutes(1));
  }
}

// All workers behind one switch.
TEST_F(SilenceTest, ManyWorkersAtATimeGiveAttemptsBack) {
  constexpr int kWorkers = 3000;
  std::vector<SlotInfo> slots;
  for (int i = 0; i < kWorkers; ++i) {
    slots.push_back(DeviceSlot("p", {1}, absl::StrCat("w", 10000 + i)));
    slots.back().boot = "b";
  }
  std::vector<SlotInfo> list = slots;
  Suspicions suspicions(&list);
  for (int i = 0; i < kWorkers; ++i)
    suspicions.Add(
        {JobId{1}, TaskIndex{0}, CandidateId{i}, slots[static_cast<size_t>(i)].id.worker, "b"},
        now_);
  list.clear();
  EXPECT_THAT(suspicions.TakeCleared(now_), SizeIs(0));
  list = slots;
  EXPECT_THAT(suspicions.TakeCleared(now_), SizeIs(kWorkers));
}

TEST_F(DispatcherTest, ARefusalIsTheReasonOfTheWait) {
  Step(SlotsChanged{{CpuSlot("cpu0", {0})}, ""});
  Submit(1);
  Break(v1::STAGE_IMPORT, false);
  EXPECT_EQ(DescribeJob(dispatcher_, job(), now_),
            "import: waiting for a cpu slot: w/cpu0 was refused: it broke");
}

// A worker that tells user faults, and those that have to confirm them.
class AccusedTest : public DispatcherTest {
 protected:
  void Accuse(v1::StageKind kind, bool own = false) {
    Step(StageFinished{Live(kind).attempt, {v1::FAULT_USER, "not an ONNX file", own}, true, {}});
  }
  bool HasFailed() { return Is<Failed>(job().phase); }
  void TwoWorkers(bool second_usable = true) {
    SlotInfo second = CpuSlot("cpu0", {0}, "v");
    second.usable = second_usable;
    Step(SlotsChanged{{CpuSlot("cpu0", {0}), CpuSlot("cpu1", {1}), DeviceSlot("p2", {2}), second},
                      ""});
  }
};

TEST_F(AccusedTest, ALoneWorkerConfirmsItsUserFaultItself) {
  TwoCores();
  Submit(1);
  Accuse(v1::STAGE_IMPORT);
  EXPECT_FALSE(HasFailed());
  EXPECT_THAT(DescribeJob(dispatcher_, job(), now_),
              HasSubstr("not an ONNX file (a second attempt has to confirm this)"));
  Wait(absl::Seconds(10));
  Accuse(v1::STAGE_IMPORT);
  EXPECT_TRUE(HasFailed());
  EXPECT_EQ(DescribeJob(dispatcher_, job(), now_), "not an ONNX file");
}

TEST_F(AccusedTest, AnotherWorkerConfirms) {
  TwoWorkers();
  Submit(1);
  const std::string accuser = Live(v1::STAGE_IMPORT).slot.worker;
  Accuse(v1::STAGE_IMPORT);
  Wait(absl::Seconds(10));
  ASSERT_TRUE(IsLive(v1::STAGE_IMPORT));
  EXPECT_NE(Live(v1::STAGE_IMPORT).slot.worker, accuser);
  Accuse(v1::STAGE_IMPORT);
  EXPECT_TRUE(HasFailed());
}

TEST_F(AccusedTest, AnotherWorkerRefutes) {
  TwoWorkers();
  Submit(1);
  Accuse(v1::STAGE_IMPORT);
  Wait(absl::Seconds(10));
  Import(1);
  EXPECT_TRUE(Is<Tuning>(job().phase));
  EXPECT_TRUE(job().accusers.empty());
  // What was said of one stage says nothing of the next.
  Accuse(v1::STAGE_PROPOSE);
  EXPECT_FALSE(HasFailed());
}

// The job waits for it, and the slot of the accuser serves others meanwhile.
TEST_F(AccusedTest, TheOtherWorkerMayBeBusy) {
  TwoWorkers();
  for (int64_t id : {1, 2, 3}) Submit(id);
  const auto of = [&](int64_t id) -> const LiveStage* {
    for (const auto& [attempt, stage] : dispatcher_.live()) {
      if (stage.job.value == id) return &stage;
    }
    return nullptr;
  };
  int64_t first = 0;  // a job on the worker with two slots
  for (int64_t id : {1, 2, 3}) {
    if (of(id)->slot.worker == "w") first = id;
  }
  Step(StageFinished{of(first)->id, {v1::FAULT_USER, "bad"}, true, {}});
  Submit(4);
  EXPECT_NE(of(4), nullptr) << "on the slot that is free now";
  Wait(absl::Seconds(10));
  EXPECT_EQ(of(first), nullptr);
  for (int64_t id : {1, 2, 3}) {
    if (id != first && of(id)->slot.worker == "v") Step(CancelRequested{JobId{id}, ""});
  }
  for (const auto& [attempt, stage] : LiveStages(dispatcher_.live())) {
    if (stage.slot.worker == "v")
      Step(StageFinished{attempt, {v1::FAULT_INFRASTRUCTURE, "cancelled"}, true, {}});
  }
  ASSERT_NE(of(first), nullptr);
  EXPECT_EQ(of(first)->slot.worker, "v");
}

TEST_F(AccusedTest, AWorkerThatIsNotUsableIsNotWaitedFor) {
  TwoWorkers(false);
  Submit(1);
  Accuse(v1::STAGE_IMPORT);
  Wait(absl::Seconds(10));
  Accuse(v1::STAGE_IMPORT);
  EXPECT_TRUE(HasFailed());
}

// Two stages of one task run on the same worker at once.
TEST_F(AccusedTest, TheSameWorkerDoesNotConfirmIfAnotherOneCould) {
  TwoWorkers(false);
  Submit(1);
  Accuse(v1::STAGE_IMPORT);
  Wait(absl::Seconds(10));
  ASSERT_TRUE(IsLive(v1::STAGE_IMPORT));
  TwoWorkers(true);
  Accuse(v1::STAGE_IMPORT);
  EXPECT_FALSE(HasFailed());
  Wait(absl::Seconds(10));
  EXPECT_EQ(Live(v1::STAGE_IMPORT).slot.worker, "v");
}

TEST_F(AccusedTest, WhatTheSchedulerFindsItselfNeedsNoConfirmation) {
  TwoWorkers();
  Submit(1);
  Accuse(v1::STAGE_IMPORT, /*own=*/true);
  EXPECT_TRUE(HasFailed());
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
