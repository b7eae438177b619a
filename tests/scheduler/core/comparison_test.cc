// After compiling, a job's module is compared with the one that has default schedules only.
#include "tests/scheduler/core/dispatcher_fixture.h"

namespace heddle::scheduler {
namespace {

using ::testing::HasSubstr;

class ComparisonTest : public RoundsTest {
 protected:
  // Ready to compare: tasks "a" and "b" are known already, so the job has nothing to measure.
  void Compare(int64_t id = 1) {
    JobParams params = Params();
    params.compare = true;
    const KnownRecords known{100, 100, 1000, 2000};
    Start(id, params, {{"a", 1, known}, {"b", 1, known}});
    End(v1::STAGE_COMPILE, Compiled{"tuned", "default"});
  }
  static Compared Found(double low_of_a, double low_of_b) {
    Compared compared;
    const auto fill = [](double low, v1::Gain* gain) {
      gain->set_low(low);
      gain->set_ratio(low + 0.05);
      gain->set_high(low + 0.1);
    };
    fill(1.1, compared.result.mutable_gain());
    for (const auto& [key, low] : {std::pair("a", low_of_a), std::pair("b", low_of_b)}) {
      v1::CompareResult::Task& task = *compared.result.add_tasks();
      task.set_workload_key(key);
      fill(low, task.mutable_gain());
    }
    return compared;
  }
  // The same, with an imported record of task "b" that does not hold.
  static Compared Broken(double low_of_a, double low_of_b) {
    Compared compared = Found(low_of_a, low_of_b);
    compared.broken.emplace_back().claim.mutable_claim()->set_workload_key("b");
    return compared;
  }
  static Compiled Chosen(const std::string& module, double ns_of_b) {
    Compiled compiled{module};
    compiled.chosen_ns = {{"a", 1000}};
    if (ns_of_b > 0) compiled.chosen_ns["b"] = ns_of_b;
    return compiled;
  }
  FaultInfo Fault(v1::FaultKind kind) const { return {kind, "no luck"}; }
};

TEST_F(ComparisonTest, AFasterModuleEndsTheJob) {
  TwoCores();
  Compare();
  ASSERT_TRUE(IsLive(v1::STAGE_COMPARE));
  EXPECT_EQ(Live(v1::STAGE_COMPARE).slot.slot, "p1") << "it needs the device it was measured on";
  EXPECT_EQ(DescribeJob(dispatcher_, job(), now_), "compare");
  End(v1::STAGE_COMPARE, Found(1.2, 1.01));
  EXPECT_TRUE(Is<Done>(job().phase));
  EXPECT_FALSE(job().tasks[0].keep_default);
  EXPECT_EQ(job().compared, 1);
}

TEST_F(ComparisonTest, ATaskThatIsNotSurelyFasterKeepsItsDefaultKernel) {
  TwoCores();
  Compare();
  End(v1::STAGE_COMPARE, Found(1.2, 0.99));
  EXPECT_FALSE(job().tasks[0].keep_default);
  EXPECT_TRUE(job().tasks[1].keep_default);
  ASSERT_TRUE(IsLive(v1::STAGE_COMPILE)) << "once more, without that kernel";
  End(v1::STAGE_COMPILE, Compiled{"mixed"});
  ASSERT_TRUE(IsLive(v1::STAGE_COMPARE));
  End(v1::STAGE_COMPARE, Found(0.9, 0.9));
  EXPECT_TRUE(Is<Done>(job().phase)) << "the second comparison takes no kernel back";
  EXPECT_FALSE(job().tasks[0].keep_default);
}

TEST_F(ComparisonTest, ABrokenRecordMakesRoomForTheNextBest) {
  TwoCores();
  Compare();
  End(v1::STAGE_COMPARE, Broken(1.2, 0.5));
  EXPECT_TRUE(job().tasks[1].replaced);
  EXPECT_FALSE(job().tasks[1].keep_default) << "another record may be faster than the default";
  EXPECT_FALSE(job().tasks[0].replaced);
  ASSERT_TRUE(IsLive(v1::STAGE_COMPILE));
  End(v1::STAGE_COMPILE, Chosen("next best", 1700));
  EXPECT_EQ(job().tasks[1].best_ns, 1700);
  EXPECT_EQ(job().tasks[1].known.best_ns, 1700);
  EXPECT_EQ(job().tasks[0].best_ns, 1000) << "of an untouched task";
  ASSERT_TRUE(IsLive(v1::STAGE_COMPARE));
  End(v1::STAGE_COMPARE, Found(0.9, 1.1));
  EXPECT_TRUE(Is<Done>(job().phase)) << "a was faster once, b is now";
  EXPECT_FALSE(job().tasks[1].keep_default);
  EXPECT_EQ(job().compared, 2);
}

TEST_F(ComparisonTest, ABrokenRecordCountsEvenIfItsKernelIsFasterThanTheDefault) {
  TwoCores();
  Compare();
  End(v1::STAGE_COMPARE, Broken(1.2, 1.5));
  EXPECT_TRUE(job().tasks[1].replaced);
  EXPECT_TRUE(IsLive(v1::STAGE_COMPILE));
}

TEST_F(ComparisonTest, TheNextBestIsJudgedLikeAnyKernel) {
  TwoCores();
  Compare();
  End(v1::STAGE_COMPARE, Broken(1.2, 0.5));
  End(v1::STAGE_COMPILE, Chosen("next best", 1700));
  End(v1::STAGE_COMPARE, Found(0.9, 0.9));
  EXPECT_TRUE(job().tasks[1].keep_default);
  EXPECT_FALSE(job().tasks[0].keep_default) << "it was judged before";
  End(v1::STAGE_COMPILE, Chosen("without it", 0));
  End(v1::STAGE_COMPARE, Found(1.2, 0.9));
  EXPECT_TRUE(Is<Done>(job().phase));
}

TEST_F(ComparisonTest, ManyFalseRecordsOfATaskLeaveItTheBestThatWasMeasuredHere) {
  TwoCores();
  Compare();
  for (int i = 0; i < kTriesOfImports; ++i) {
    EXPECT_TRUE(job().TrustsImports(job().tasks[1])) << i;
    End(v1::STAGE_COMPARE, Broken(1.2, 0.5));
    EXPECT_FALSE(job().tasks[1].keep_default);
    ASSERT_TRUE(IsLive(v1::STAGE_COMPILE));
    if (i + 1 < kTriesOfImports) End(v1::STAGE_COMPILE, Chosen("next best", 1.0 + i));
  }
  EXPECT_FALSE(job().TrustsImports(job().tasks[1]));
  EXPECT_TRUE(job().TrustsImports(job().tasks[0])) << "nothing is wrong with that task";
  End(v1::STAGE_COMPILE, Chosen("its own", 1700));
  ASSERT_TRUE(IsLive(v1::STAGE_COMPARE));
  End(v1::STAGE_COMPARE, Found(1.2, 1.1));
  EXPECT_TRUE(Is<Done>(job().phase));
  EXPECT_FALSE(job().tasks[1].keep_default);
  EXPECT_EQ(job().tasks[1].best_ns, 1700);
  EXPECT_EQ(job().compared, kTriesOfImports + 1);
}

// Whatever the comparison says, a job does not compare for ever.
TEST_F(ComparisonTest, AfterThatATaskKeepsTheDefaultKernel) {
  TwoCores();
  Compare();
  for (int i = 0; i <= kTriesOfImports; ++i) {
    End(v1::STAGE_COMPARE, Broken(1.2, 0.5));
    ASSERT_TRUE(IsLive(v1::STAGE_COMPILE));
    End(v1::STAGE_COMPILE, Chosen("another", 1.0 + i));
  }
  EXPECT_TRUE(job().tasks[1].keep_default);
  End(v1::STAGE_COMPARE, Broken(1.2, 0.5));
  EXPECT_TRUE(Is<Done>(job().phase));
  EXPECT_EQ(job().compared, kTriesOfImports + 2);
}

// Nothing is left of a task whose only record was false.
TEST_F(ComparisonTest, AJobWithoutAnyOtherRecordIsComparedToTheEnd) {
  TwoCores();
  JobParams params = Params();
  params.compare = true;
  Start(1, params, {{"b", 1, {100, 100, 1, 2000}}});
  End(v1::STAGE_COMPILE, Compiled{"tuned", "default"});
  End(v1::STAGE_COMPARE, Broken(1.2, 0.5));
  End(v1::STAGE_COMPILE, Compiled{"plain"});
  EXPECT_EQ(job().tasks[0].best_ns, 0);
  ASSERT_TRUE(IsLive(v1::STAGE_COMPARE));
  Compared same;
  same.result.mutable_gain()->set_high(1);
  End(v1::STAGE_COMPARE, same);
  EXPECT_TRUE(Is<Done>(job().phase));
}

TEST_F(ComparisonTest, FailuresDoNotFailTheJob) {
  TwoCores();
  Compare();
  for (const v1::FaultKind kind : {v1::FAULT_USER, v1::FAULT_INFRASTRUCTURE, v1::FAULT_USER}) {
    ASSERT_TRUE(IsLive(v1::STAGE_COMPARE));
    Step(StageFinished{Live(v1::STAGE_COMPARE).attempt, Fault(kind), true, {}});
    now_ += absl::Seconds(30);
    Step(Tick{});
  }
  EXPECT_TRUE(Is<Done>(job().phase));
  EXPECT_THAT(job().not_compared, HasSubstr("failed 3 times: no luck"));
}

TEST_F(ComparisonTest, AJobWithoutADeviceIsDoneAtOnce) {
  TwoCores();
  JobParams params = Params();
  params.compare = true;
  Start(1, params, {{"a", 1, {100, 100, 1000, 2000}}});
  Step(SlotsChanged{{CpuSlot("cpu0", {0})}, ""});
  End(v1::STAGE_COMPILE, Compiled{"tuned", "default"});
  EXPECT_TRUE(Is<Done>(job().phase));
  EXPECT_THAT(job().not_compared, HasSubstr("no device"));
}

TEST_F(ComparisonTest, WaitingForADeviceHasALimitAndPausesDoNotCount) {
  TwoCores();
  Compare(1);
  Step(SlotsChanged{{CpuSlot("cpu0", {0})}, ""});  // the device leaves
  Step(StageFinished{Live(v1::STAGE_COMPARE).attempt, Fault(v1::FAULT_INFRASTRUCTURE), false, {}});
  now_ += absl::Minutes(9);
  Step(Tick{});
  ASSERT_TRUE(Is<Comparing>(job().phase));
  Step(PauseRequested{JobId{1}, ""});
  now_ += absl::Hours(1);
  Step(ResumeRequested{JobId{1}});
  ASSERT_TRUE(Is<Comparing>(job().phase));
  EXPECT_LE(dispatcher_.NextWake(now_), now_ + absl::Minutes(10));
  now_ += absl::Minutes(10);
  Step(Tick{});
  EXPECT_TRUE(Is<Done>(job().phase));
  EXPECT_THAT(job().not_compared, HasSubstr("no device was free"));
}

TEST_F(ComparisonTest, WithoutTunedTasksThereIsNothingToCompare) {
  TwoCores();
  JobParams params = Params();
  params.compare = true;
  Start(1, params, {});
  End(v1::STAGE_COMPILE, Compiled{"tuned", "default"});
  EXPECT_TRUE(Is<Done>(job().phase));
}

}  // namespace
}  // namespace heddle::scheduler
