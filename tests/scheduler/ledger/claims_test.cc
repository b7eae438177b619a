// Imported records against what a comparison measured.
#include "scheduler/ledger/claims.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "scheduler/ledger/job_ledger.h"
#include "scheduler/ledger/stage_order.h"
#include "tests/scheduler/core/dispatcher_fixture.h"

namespace heddle::scheduler {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr char kTask[] = "0123456789abcdef";

ClaimedKernel Claimed(double ns, double untuned_ns, int uses = 1) {
  ClaimedKernel kernel;
  kernel.claim.set_workload_key(kTask);
  kernel.claim.set_record(7);
  kernel.claim.set_ns(ns);
  kernel.claim.set_imported_by("bob");
  kernel.untuned_ns = untuned_ns;
  kernel.uses = uses;
  return kernel;
}

// All uses together took `ns`, and those of the default kernel `default_ns`. The interval of the gain
// reaches `spread` times as far as its median.
v1::CompareResult MeasuredGain(double ns, double default_ns, double spread = 1.02) {
  v1::CompareResult result;
  result.add_tasks()->set_workload_key("of another");
  v1::CompareResult::Task& task = *result.add_tasks();
  task.set_workload_key(kTask);
  task.set_ns(ns);
  task.set_default_ns(default_ns);
  task.mutable_gain()->set_ratio(default_ns / ns);
  task.mutable_gain()->set_low(default_ns / ns / spread);
  task.mutable_gain()->set_high(default_ns / ns * spread);
  return result;
}

std::vector<BrokenRecord> Found(const v1::CompareResult& result, const ClaimedKernel& kernel) {
  return FindBroken(result, {kernel}, "j5");
}

TEST(ClaimsTest, AKernelThatKeepsItsWordHolds) {
  EXPECT_THAT(Found(MeasuredGain(10'000, 40'000), Claimed(10'000, 40'000)), IsEmpty());
  EXPECT_THAT(Found(MeasuredGain(3'000, 12'000), Claimed(10'000, 40'000)), IsEmpty()) << "warm";
  EXPECT_THAT(Found(MeasuredGain(18'000, 40'000), Claimed(10'000, 40'000)), IsEmpty())
      << "within what machines of one key differ by";
}

TEST(ClaimsTest, AKernelThatIsFarSlowerThanItsRecordBreaksIt) {
  const std::vector<BrokenRecord> broken =
      Found(MeasuredGain(30'000, 40'000), Claimed(10'000, 40'000));
  ASSERT_THAT(broken, SizeIs(1));
  EXPECT_EQ(broken[0].claim.claim().record(), 7);
  EXPECT_EQ(broken[0].claim.ns(), 30'000);
  EXPECT_EQ(broken[0].reason,
            "it says 10us, but its kernel took 30us in the module of j5, and the default one 40us");
}

TEST(ClaimsTest, NoiseBreaksNothing) {
  EXPECT_THAT(Found(MeasuredGain(30'000, 40'000, 1.5), Claimed(10'000, 40'000)), IsEmpty())
      << "it may as well have taken 20 us";
  EXPECT_THAT(Found(MeasuredGain(30'000, 40'000, 1.3), Claimed(10'000, 40'000)), SizeIs(1));
}

TEST(ClaimsTest, ASlowDeviceBreaksNothing) {
  EXPECT_THAT(Found(MeasuredGain(60'000, 160'000), Claimed(10'000, 40'000)), IsEmpty())
      << "the default kernel is four times as slow as usual, too";
  EXPECT_THAT(Found(MeasuredGain(90'000, 160'000), Claimed(10'000, 40'000)), SizeIs(1));
}

TEST(ClaimsTest, WithoutAnotherMeasureTheMarginIsWider) {
  EXPECT_THAT(Found(MeasuredGain(30'000, 40'000), Claimed(10'000, 0)), IsEmpty());
  EXPECT_THAT(Found(MeasuredGain(45'000, 60'000), Claimed(10'000, 0)), SizeIs(1));
}

TEST(ClaimsTest, CallsOfSmallKernelsMayCostWhatTimingThemCosts) {
  EXPECT_THAT(Found(MeasuredGain(900, 1'500), Claimed(10, 1'400)), IsEmpty());
  EXPECT_THAT(Found(MeasuredGain(5'000, 9'000), Claimed(10, 9'000)), SizeIs(1));
}

TEST(ClaimsTest, TimesAreOfAllUsesInAnInference) {
  EXPECT_THAT(Found(MeasuredGain(100'000, 400'000), Claimed(10'000, 40'000, 10)), IsEmpty());
  const auto broken = Found(MeasuredGain(300'000, 400'000), Claimed(10'000, 40'000, 10));
  ASSERT_THAT(broken, SizeIs(1));
  EXPECT_EQ(broken[0].claim.ns(), 30'000);
}

TEST(ClaimsTest, WhatWasNotMeasuredIsNotJudged) {
  EXPECT_THAT(Found({}, Claimed(1, 1)), IsEmpty());
  EXPECT_THAT(Found(MeasuredGain(0, 0), Claimed(1, 1)), IsEmpty());
}

// A job whose two tasks are on record already; that of the first is imported.
class ClaimedJobTest : public DispatcherTest {
 protected:
  ClaimedJobTest() {
    TwoCores();
    JobSubmitted submitted{JobId{1}, {}};
    v1::JobSpec& spec = *submitted.description.mutable_spec();
    spec.set_target(kTarget);
    spec.set_trials_per_task(1);
    spec.set_plan_search("off");
    submitted.params = *JobLedger::ParamsFrom(spec, now_, now_);
    Feed(submitted);
    Imported imported = ImportOf({{kTask, 2, {3, 3, 10, 40'000}}, {"b", 1, {3, 3, 900, 0}}}, "key");
    imported.model.add_inputs("x: f32[1]");
    Feed(StageFinished{Live(v1::STAGE_IMPORT).attempt, {}, true, std::move(imported)});
  }
  Batch Feed(const Event& event) {
    return ledger_.Absorb(dispatcher_, event, Step(event).changes, now_, now_);
  }
  StageOrder Order(v1::StageKind kind) {
    return MakeOrder(dispatcher_, ledger_, Live(kind), v1::SCHEDULE_BEST);
  }
  static v1::Record Known(int64_t id, const std::string& trace, double ns,
                          const std::string& imported_by) {
    v1::Record record;
    record.set_id(id);
    record.set_trace(trace);
    record.set_median_ns(ns);
    record.set_imported_by(imported_by);
    return record;
  }
  // Compiles with these best records of the two tasks.
  StageOrder Compile(const v1::Record& first) {
    StageOrder order = Order(v1::STAGE_COMPILE);
    OrderInputs inputs;
    inputs.best = {{first}, {Known(8, "trace of b", 900, "")}};
    CompleteOrder(inputs, &order);
    Feed(StageFinished{Live(v1::STAGE_COMPILE).attempt,
                       {},
                       true,
                       Compiled{"module", "default", "", "", order.claims, order.chosen_ns}});
    return order;
  }
  Batch Compare(double ns) {
    const StageOrder order = Order(v1::STAGE_COMPARE);
    Compared compared{MeasuredGain(ns, 80'000)};
    compared.result.mutable_tasks()->DeleteSubrange(0, 1);
    compared.broken = FindBroken(compared.result, order.claimed, "j1");
    return Feed(StageFinished{Live(v1::STAGE_COMPARE).attempt, {}, true, std::move(compared)});
  }
  const v1::Job& Row() const { return ledger_.data(JobId{1}).row.job; }

  JobLedger ledger_;
};

TEST_F(ClaimedJobTest, AFalseRecordIsRetractedAndTheNextBestTaken) {
  const StageOrder compile = Compile(Known(7, "false", 10, "bob"));
  ASSERT_THAT(compile.claims, SizeIs(1)) << "the other record was measured here";
  EXPECT_EQ(compile.claims[0].imported_by(), "bob");
  EXPECT_EQ(compile.start.compile().best(0).trace(), "false");
  ASSERT_EQ(Row().claims_size(), 1);
  const StageOrder compare = Order(v1::STAGE_COMPARE);
  ASSERT_THAT(compare.claimed, SizeIs(1));
  EXPECT_EQ(compare.claimed[0].uses, 2);
  EXPECT_EQ(compare.claimed[0].untuned_ns, 40'000);

  const Batch batch = Compare(60'000);
  std::vector<int64_t> retracted;
  for (const StoreChange& change : batch) {
    const auto* retract = std::get_if<RetractRecords>(&change);
    if (retract == nullptr) continue;
    retracted.insert(retracted.end(), retract->ids.begin(), retract->ids.end());
    EXPECT_EQ(retract->retraction.by(), "scheduler");
    EXPECT_THAT(retract->retraction.reason(), HasSubstr("it says 10ns"));
  }
  EXPECT_THAT(retracted, ElementsAre(7));
  EXPECT_EQ(Row().state(), v1::JOB_COMPILING);
  ASSERT_EQ(Row().comparison().broken_size(), 1);
  EXPECT_EQ(Row().comparison().broken(0).ns(), 30'000);
  EXPECT_EQ(Row().comparison().taken_back_size(), 0);
  EXPECT_THAT(Row().warnings(), ElementsAre(HasSubstr("record 7, imported by bob, is retracted")));

  Compile(Known(9, "next best", 25'000, ""));
  EXPECT_EQ(Row().claims_size(), 0);
  EXPECT_EQ(ledger_.View(dispatcher_, JobId{1}, now_).tasks(0).best_ns(), 25'000);
  Compare(50'000);
  EXPECT_EQ(Row().state(), v1::JOB_DONE);
  EXPECT_EQ(Row().comparison().made(), 2);
  EXPECT_EQ(Row().comparison().broken_size(), 1) << "it still says what became of the record";
}

TEST_F(ClaimedJobTest, AfterThreeFalseRecordsOnlyWhatWasMeasuredHereIsRead) {
  for (int i = 0; i < kTriesOfImports; ++i) {
    const StageOrder order = Order(v1::STAGE_COMPILE);
    ASSERT_THAT(order.reads.best, SizeIs(2));
    EXPECT_FALSE(order.reads.best[0].measured_here) << i;
    Compile(Known(7 + i, "false", 10 + i, "bob"));
    Compare(60'000);
    ASSERT_EQ(Row().state(), v1::JOB_COMPILING);
  }
  const StageOrder order = Order(v1::STAGE_COMPILE);
  ASSERT_THAT(order.reads.best, SizeIs(2));
  EXPECT_TRUE(order.reads.best[0].measured_here);
  EXPECT_FALSE(order.reads.best[1].measured_here) << "that task has no false record";
  EXPECT_THAT(Compile(Known(20, "own", 25'000, "")).claims, IsEmpty());
  Compare(50'000);
  EXPECT_EQ(Row().state(), v1::JOB_DONE);
  EXPECT_EQ(Row().comparison().broken_size(), kTriesOfImports);
  EXPECT_EQ(Row().comparison().taken_back_size(), 0);
}

TEST_F(ClaimedJobTest, ATrueRecordStays) {
  Compile(Known(7, "true", 25'000, "bob"));
  for (const StoreChange& change : Compare(50'000))
    EXPECT_FALSE(std::holds_alternative<RetractRecords>(change));
  EXPECT_EQ(Row().state(), v1::JOB_DONE);
  EXPECT_EQ(Row().claims_size(), 0) << "it is settled";
}

// Two modules of the same kernels differ by when they were made.
TEST_F(ClaimedJobTest, AModuleWhoseKernelsWereAllTakenBackIsNoSlowerThanTheDefault) {
  Compile(Known(7, "trace", 25'000, ""));
  Compared slower{MeasuredGain(40'000, 40'000)};
  slower.result.mutable_tasks(0)->set_workload_key("b");
  Feed(StageFinished{Live(v1::STAGE_COMPARE).attempt, {}, true, slower});
  ASSERT_EQ(Row().comparison().taken_back_size(), 2);
  Feed(StageFinished{
      Live(v1::STAGE_COMPILE).attempt, {}, true, Compiled{"plain module", "", "", "", {}, {}}});
  Compared noise;
  noise.result.set_default_ns(40'000);
  noise.result.set_ns(44'000);
  noise.result.mutable_gain()->set_rounds(7);
  noise.result.mutable_gain()->set_ratio(0.9);
  noise.result.mutable_gain()->set_low(0.85);
  noise.result.mutable_gain()->set_high(0.95);
  Feed(StageFinished{Live(v1::STAGE_COMPARE).attempt, {}, true, noise});
  ASSERT_EQ(Row().state(), v1::JOB_DONE);
  EXPECT_FALSE(Row().comparison().module_is_default());
  // Nor is there a gain, which would have an interval.
  EXPECT_EQ(Row().comparison().result().gain().ShortDebugString(), "ratio: 1");
  EXPECT_EQ(Row().comparison().result().ns(), 40'000);
  EXPECT_EQ(Row().module_digest(), "plain module");
}

// The job's own trial, or one of this service, is not a claim, however fast it is.
TEST_F(ClaimedJobTest, WhatWasMeasuredHereIsNoClaim) {
  EXPECT_THAT(Compile(Known(7, "own", 10, "")).claims, IsEmpty());
  for (const StoreChange& change : Compare(60'000))
    EXPECT_FALSE(std::holds_alternative<RetractRecords>(change));
}

TEST_F(ClaimedJobTest, ARestartForgetsNeitherClaimNorReplacement) {
  Compile(Known(7, "false", 10, "bob"));
  const auto restart = [&] {
    StoredJob stored;
    stored.row = ledger_.data(JobId{1}).row;
    for (const JobLedger::TaskData& task : ledger_.data(JobId{1}).tasks) {
      stored.tasks.push_back(task.row);
      stored.states.push_back("");
    }
    return JobLedger().Load(stored, now_, now_);
  };
  EXPECT_EQ(Row().claims_size(), 1) << "the row has it, and so has the store";
  EXPECT_FALSE(restart().tasks[0].replaced);
  Compare(60'000);
  const Job job = restart();
  EXPECT_TRUE(job.tasks[0].replaced);
  EXPECT_FALSE(job.tasks[1].replaced);
  EXPECT_FALSE(job.tasks[0].keep_default);
}

}  // namespace
}  // namespace heddle::scheduler
