// Orders that tell workers something wrong are detected, and right ones are not.
#include "scheduler/sim/world/order_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "scheduler/sim/world/stage_work.h"
#include "scheduler/store/memory_record_store.h"

namespace heddle::sim {
namespace {

using ::testing::HasSubstr;

constexpr JobId kJob{1};
constexpr TaskIndex kTask{0};

// A job of one task with four candidates: the first learned, the second OK, the third lost by
// faults, the fourth still open.
class OrderCheckTest : public ::testing::Test {
 protected:
  void SetUp() override {
    JobSubmitted submitted{kJob, {}};
    dispatcher_.Step(submitted, now_);
    Proposed proposed;
    proposed.count = 4;
    for (const char* trace : {"a", "b", "c", "d"})
      proposed.candidates.emplace_back().set_trace(trace);
    StageFinished end{AttemptId{1}, {}, true, proposed};
    check_.AfterStep(end, {AddCandidates{kJob, kTask, CandidateId{1}, 4}});
    Measure(1, v1::OUTCOME_OK, 30);
    check_.AfterStep(Tick{}, {MarkLearned{kJob, kTask, CandidateId{2}}});
    Measure(2, v1::OUTCOME_OK, 20);
    Measure(3, v1::OUTCOME_LOST, 0);
    job_.id = kJob;
    job_.tasks.resize(1);
  }
  void Measure(int64_t id, v1::Outcome outcome, double median_ns) {
    CandidateProfiled event{AttemptId{2}, CandidateId{id}, outcome, "", median_ns};
    check_.AfterStep(event,
                     {FinishCandidate{kJob, kTask, CandidateId{id}, 1, AttemptId{2}, outcome, ""}});
  }
  // The restored job has the task, so that orders can be checked against it.
  const Dispatcher& Restored() {
    restored_.Restore(job_);
    return restored_;
  }
  static StartStage StartOf(v1::StageKind kind) {
    StartStage start;
    start.attempt = AttemptId{3};
    start.job = kJob;
    start.kind = kind;
    start.task = kTask;
    start.before = CandidateId{4};
    return start;
  }
  static v1::StageInput Profile(int64_t id, const std::string& trace, const std::string& code) {
    v1::StageInput input;
    input.mutable_profile()->mutable_candidate()->set_id(id);
    input.mutable_profile()->mutable_candidate()->set_trace(trace);
    input.mutable_profile()->mutable_artifact()->set_shared_object(code);
    return input;
  }
  static void AddResult(const std::string& trace, double median_ns, StageOrder* order) {
    v1::SearchResult& result = *order->start.mutable_update()->add_results();
    result.set_trace(trace);
    result.set_valid(true);
    result.set_median_ns(median_ns);
  }

  const absl::Time now_ = absl::FromUnixSeconds(1'000'000);
  Dispatcher dispatcher_{*MakePolicy("round_robin")}, restored_{*MakePolicy("round_robin")};
  Job job_;
  OrderCheck check_;
};

TEST_F(OrderCheckTest, AProfiledCandidateHasItsTraceAndArtifact) {
  EXPECT_EQ(check_.Fed(kJob, CandidateId{4}, Profile(4, "d", CodeOf("d"))), "");
  EXPECT_THAT(check_.Fed(kJob, CandidateId{4}, Profile(4, "c", CodeOf("c"))), HasSubstr("trace"));
  EXPECT_THAT(check_.Fed(kJob, CandidateId{4}, Profile(3, "d", CodeOf("d"))),
              HasSubstr("candidate"));
  EXPECT_THAT(check_.Fed(kJob, CandidateId{4}, Profile(4, "d", "")), HasSubstr("artifact"));
}

TEST_F(OrderCheckTest, ABuildHasEachOfItsCandidates) {
  StartStage start = StartOf(v1::STAGE_BUILD);
  start.candidates = {CandidateId{4}};
  StageOrder order;
  EXPECT_THAT(check_.Made(Restored(), start, order), HasSubstr("0 of 1"));
  v1::Candidate& candidate = *order.inputs.emplace_back().mutable_build()->mutable_candidate();
  candidate.set_id(4);
  candidate.set_trace("d");
  EXPECT_EQ(check_.Made(restored_, start, order), "");
  candidate.set_trace("a");
  EXPECT_THAT(check_.Made(restored_, start, order), HasSubstr("trace"));
}

TEST_F(OrderCheckTest, AnUpdateLearnsWhatNoneLearnedAndNothingLost) {
  const StartStage start = StartOf(v1::STAGE_UPDATE);
  StageOrder order;
  EXPECT_THAT(check_.Made(Restored(), start, order), HasSubstr("does not learn candidate 2"));
  AddResult("b", 20, &order);
  EXPECT_EQ(check_.Made(restored_, start, order), "");
  StageOrder twice = order;
  AddResult("a", 30, &twice);
  EXPECT_THAT(check_.Made(restored_, start, twice), HasSubstr("must not"));
  StageOrder lost = order;
  AddResult("c", 0, &lost);
  EXPECT_THAT(check_.Made(restored_, start, lost), HasSubstr("must not"));
  StageOrder wrong;
  AddResult("b", 21, &wrong);
  EXPECT_THAT(check_.Made(restored_, start, wrong), HasSubstr("in place of"));
}

TEST_F(OrderCheckTest, LearnableAreMeasuredCandidatesOutsideOfRoundsInFlight) {
  EXPECT_EQ(check_.Learnable(job_, kTask), 2);
  job_.tasks[0].rounds.push_back({CandidateId{2}, CandidateId{5}, 3, 1});
  EXPECT_EQ(check_.Learnable(job_, kTask), 1);
}

TEST_F(OrderCheckTest, AModuleIsCompiledFromTheBestOfStoreAndJob) {
  const std::unique_ptr<RecordStore> store = MakeMemoryRecordStore();
  auto insert = [&](const std::string& trace, double median_ns) {
    InsertRecord put;
    put.record.set_schema_version(1);
    put.record.set_workload_key("k");
    put.record.set_workload("w");
    put.record.set_target("llvm");
    put.record.set_device_key("d");
    put.record.set_trace(trace);
    put.record.set_median_ns(median_ns);
    put.record.mutable_measurement()->set_outcome(v1::OUTCOME_OK);
    put.record.mutable_measurement()->add_samples_ns(median_ns);
    put.imported = true;
    ASSERT_TRUE(store->Apply(std::vector<Batch>{{put}})->front().ok());
  };
  insert("slow", 25);
  StageOrder made;
  v1::BestTrace& own = *made.start.mutable_compile()->add_best();
  own.set_workload_key("k");
  own.set_trace("b");
  own.set_median_ns(20);
  made.reads.best.push_back({{"k", "", ""}});
  EXPECT_EQ(check_.Made(Restored(), StartOf(v1::STAGE_COMPILE), made), "");
  EXPECT_EQ(check_.Completed(made, made, store.get()), "");
  insert("fast", 10);
  EXPECT_THAT(check_.Completed(made, made, store.get()), HasSubstr("the best known is 'fast'"));
  StageOrder completed = made;
  CompleteOrder(FetchInputs(store.get(), made.reads), &completed);
  EXPECT_EQ(check_.Completed(made, completed, store.get()), "");
}

TEST_F(OrderCheckTest, ATaskThatKeepsTheDefaultScheduleIsToldItsTime) {
  job_.tasks[0].keep_default = true;
  job_.tasks[0].key = "k";
  StageOrder order;
  v1::BestTrace& kept = *order.start.mutable_compile()->add_best();
  kept.set_workload_key("k");
  kept.set_trace("default");
  kept.set_median_ns(30);
  const StartStage start = StartOf(v1::STAGE_COMPILE);
  EXPECT_EQ(check_.Made(Restored(), start, order), "");
  const std::unique_ptr<RecordStore> store = MakeMemoryRecordStore();
  StageOrder completed = order;
  CompleteOrder(FetchInputs(store.get(), order.reads), &completed);
  EXPECT_EQ(check_.Completed(order, completed, store.get()), "");
  ASSERT_EQ(completed.start.compile().best_size(), 1);
  EXPECT_EQ(completed.start.compile().best(0).trace(), "default");
  kept.set_median_ns(0);
  EXPECT_THAT(check_.Made(restored_, start, order), HasSubstr("of no time"));
  kept.set_median_ns(30);
  kept.set_trace("b");
  EXPECT_THAT(check_.Made(restored_, start, order), HasSubstr("taken back"));
  kept.set_trace("default");
  kept.set_workload_key("another");
  EXPECT_THAT(check_.Made(restored_, start, order), HasSubstr("taken back"));
}

TEST_F(OrderCheckTest, OnlyASearchThatBeginsIsToldOfOthers) {
  Updated updated;
  updated.transfer_samples.set_samples("s");
  check_.AfterStep(StageFinished{AttemptId{1}, {}, true, updated}, {});
  StageOrder order;
  v1::RelatedSamples& other = *order.start.mutable_propose()->mutable_search()->add_others();
  other.set_samples("s");
  other.set_weight(1);
  EXPECT_EQ(check_.Completed(order, order, nullptr), "");
  order.search_state = "1 1 1";
  EXPECT_THAT(check_.Completed(order, order, nullptr), HasSubstr("again"));
  order.search_state.clear();
  other.set_samples("t");
  EXPECT_THAT(check_.Completed(order, order, nullptr), HasSubstr("nobody made"));
}

}  // namespace
}  // namespace heddle::sim
