// A job with params.plan surveys its tasks, has its plan chosen, and tunes the tasks of that plan.
#include <map>

#include "scheduler/core/machines/trial_budget.h"
#include "tests/scheduler/core/dispatcher_fixture.h"

namespace heddle::scheduler {
namespace {

using ::testing::ElementsAre;

class PlanningTest : public RoundsTest {
 protected:
  static JobParams Plans(Allocation allocation = Allocation::kUniform) {
    JobParams params = Params(8, 4);
    params.plan = true;
    params.allocation = allocation;
    return params;
  }
  static Planned PlanOf(const std::vector<std::pair<std::string, int>>& weights,
                        bool survey = false) {
    Planned planned;
    planned.plan.set_plan("a plan");
    planned.plan.set_survey(survey);
    for (const auto& [key, weight] : weights) {
      v1::TaskInfo& info = *planned.plan.add_tasks();
      info.set_key(key);
      info.set_weight(weight);
    }
    return planned;
  }
  // An answer with a plan and a rival. A task that only the rival has comes with weight 0.
  static Planned PlanOfTwo(const std::vector<std::pair<std::string, int>>& weights,
                           const std::map<std::string, int>& rivals) {
    Planned planned = PlanOf(weights);
    std::map<std::string, v1::TaskInfo*> tasks;
    for (v1::TaskInfo& info : *planned.plan.mutable_tasks()) tasks[info.key()] = &info;
    for (const auto& [key, weight] : rivals) {
      v1::TaskInfo*& info = tasks[key];
      if (info == nullptr) info = planned.plan.add_tasks();
      info->set_key(key);
      info->set_rival_weight(weight);
    }
    return planned;
  }
  // A gradient job, in rounds of 4 trials, that has made its survey.
  void SurveyTwoPlans(const std::vector<FoundTask>& tasks, int trials = 16,
                      absl::Duration limit = absl::InfiniteDuration(), bool compare = false) {
    TwoCores();
    JobParams params = Plans(Allocation::kGradient);
    params.trials_per_task = trials;
    params.time_limit = limit;
    params.compare = compare;
    Start(1, params, tasks);
    Survey();
    ASSERT_TRUE(IsLive(v1::STAGE_PLAN));
  }
  std::vector<bool> Ended() {
    std::vector<bool> ended;
    for (const Task& task : job().tasks) ended.push_back(Is<Finished>(task.phase));
    return ended;
  }
  // Rounds until a stage plans, or the job does something else than tuning.
  int Survey() {
    int rounds = 0;
    while (Is<Tuning>(job().phase)) {
      if (++rounds > 100) {
        ADD_FAILURE() << "tuning never ends";
        break;
      }
      RoundAt(1000);
    }
    return rounds;
  }
  int64_t last_ = 0;  // job of a test with several
  std::vector<int> Trials() {
    std::vector<int> trials;
    for (const Task& task : job().tasks) trials.push_back(task.trials);
    return trials;
  }
};

TEST_F(PlanningTest, EveryTaskGetsOneTrialThenThePlanDecides) {
  TwoCores();
  Start(1, Plans(), {{"a", 2}, {"b", 1}, {"c", 0}});
  EXPECT_TRUE(Surveying(job()));
  EXPECT_EQ(Survey(), 3);
  EXPECT_THAT(Trials(), ElementsAre(1, 1, 1));
  ASSERT_TRUE(IsLive(v1::STAGE_PLAN));
  EXPECT_EQ(DescribeJob(dispatcher_, job(), now_), "plan");
  EXPECT_EQ(Live(v1::STAGE_PLAN).slot.slot, "cpu0");
  // "a" and "c" stay, "b" retires, "d" is new.
  End(v1::STAGE_PLAN, PlanOf({{"a", 1}, {"c", 3}, {"d", 1}}));
  EXPECT_FALSE(Surveying(job()));
  EXPECT_TRUE(Is<Tuning>(job().phase));
  ASSERT_EQ(job().tasks.size(), 4u);
  EXPECT_EQ(job().tasks[2].weight, 3);
  EXPECT_TRUE(Is<Finished>(job().tasks[1].phase));
  EXPECT_EQ(job().tasks[3].key, "d");
  Survey();
  EXPECT_THAT(Trials(), ElementsAre(8, 1, 8, 8)) << "what was measured counts";
  ASSERT_TRUE(IsLive(v1::STAGE_PLAN)) << "once more, with the best times";
  End(v1::STAGE_PLAN, PlanOf({{"b", 1}, {"c", 3}}));
  EXPECT_TRUE(Compiling());
  EXPECT_EQ(job().tasks[1].weight, 1);
  EXPECT_EQ(job().tasks[0].weight, 0);
}

// What a survey would measure is of no use where no survey follows: after the last one, after tuning, and
// after a stop. Tasks that the job has stay, retired.
TEST_F(PlanningTest, ATaskThatNobodyWillMeasureIsNotAdded) {
  TwoCores();
  Start(1, Plans(), {{"a", 1}, {"b", 0}});
  Survey();
  End(v1::STAGE_PLAN, PlanOf({{"a", 1}, {"b", 0}, {"c", 0}}));
  EXPECT_EQ(job().tasks.size(), 2u) << "the stage asks for no survey";
  EXPECT_FALSE(Surveying(job()));
  Survey();
  End(v1::STAGE_PLAN, PlanOf({{"d", 0}, {"b", 1}, {"e", 1}, {"a", 0}}, true));
  ASSERT_EQ(job().tasks.size(), 3u) << "the job is tuned";
  EXPECT_EQ(job().tasks[0].weight, 0);
  EXPECT_EQ(job().tasks[2].key, "e") << "the plan needs it";
  for (const Task& task : job().tasks) EXPECT_TRUE(Is<Finished>(task.phase)) << task.key;
  EXPECT_TRUE(Compiling());
}

TEST_F(PlanningTest, AGradientJobSharesThePoolOfThePlansTasksOnly) {
  TwoCores();
  Start(1, Plans(Allocation::kGradient), {{"a", 1}, {"b", 0}, {"c", 0}});
  EXPECT_EQ(Survey(), 3);
  End(v1::STAGE_PLAN, PlanOf({{"a", 1}, {"b", 1}}));
  EXPECT_EQ(TrialBudget(job(), {}), 2 * 8 + 1);
  Survey();
  const std::vector<int> trials = Trials();
  EXPECT_EQ(trials[0] + trials[1], 16);
  EXPECT_EQ(trials[2], 1);
}

// Nobody knows which of two plans is the faster one once tuned, so the tasks of both get trials, until half of the
// pool of 32 is used. Then the better one gets the rest. Nothing else is measured meanwhile.
TEST_F(PlanningTest, TwoPlansThatTakeAlikeAreBothTunedForHalfOfTheTrials) {
  SurveyTwoPlans({{"a", 1}, {"b", 0}, {"c", 1}, {"d", 0}});
  End(v1::STAGE_PLAN, PlanOfTwo({{"a", 1}, {"b", 1}}, {{"a", 1}, {"c", 1}}));
  EXPECT_TRUE(Contending(job()));
  EXPECT_FALSE(Surveying(job()));
  EXPECT_EQ(job().tasks[2].rival_weight, 1);
  EXPECT_THAT(Ended(), ElementsAre(false, false, false, false)) << "the next choice may need \"d\"";
  EXPECT_EQ(TrialBudget(job(), {}), 2 * 16 + 2) << "\"c\" and \"d\" were surveyed beside the pool";
  Survey();
  ASSERT_TRUE(IsLive(v1::STAGE_PLAN));
  std::vector<int> trials = Trials();
  EXPECT_GE(std::min({trials[0], trials[1], trials[2]}), 5);
  EXPECT_EQ(trials[0] + trials[1] + trials[2], 19) << "the first round that reaches half ends it";
  EXPECT_EQ(trials[3], 1);
  End(v1::STAGE_PLAN, PlanOf({{"a", 1}, {"c", 1}}));
  EXPECT_TRUE(Is<Tuning>(job().phase));
  EXPECT_FALSE(Contending(job()));
  EXPECT_THAT(Ended(), ElementsAre(false, true, false, true));
  const int lost = trials[1];
  Survey();
  trials = Trials();
  EXPECT_EQ(trials[0] + trials[2] + lost - 1, 32) << "the trials of both plans are of one pool";
  EXPECT_EQ(trials[1], lost);
  ASSERT_TRUE(IsLive(v1::STAGE_PLAN)) << "once more, with the best times";
  End(v1::STAGE_PLAN, PlanOfTwo({{"a", 1}, {"c", 1}}, {{"b", 1}}));
  EXPECT_TRUE(Compiling());
  EXPECT_FALSE(Contending(job())) << "the job is tuned";
}

TEST_F(PlanningTest, AContestEndsWhenOnePlanIsClearlyFaster) {
  SurveyTwoPlans({{"a", 1}, {"b", 0}, {"c", 2}});
  End(v1::STAGE_PLAN, PlanOfTwo({{"a", 1}, {"b", 1}}, {{"a", 1}, {"c", 2}}));
  Survey();  // 2000 ns against 3000
  ASSERT_TRUE(IsLive(v1::STAGE_PLAN));
  EXPECT_THAT(Trials(), ElementsAre(5, 5, 5)) << "each had its floor of four";
}

// The tuned kernels of the second plan turn out to be faster: it wins, although its default schedules took longer.
TEST_F(PlanningTest, TheTimesOfTunedKernelsDecide) {
  SurveyTwoPlans({{"a", 1}, {"b", 0}, {"c", 1}});
  End(v1::STAGE_PLAN, PlanOfTwo({{"a", 1}, {"b", 1}}, {{"a", 1}, {"c", 1}}));
  while (Is<Tuning>(job().phase))
    RoundOf([](TaskIndex task) { return task.value == 2 ? 500.0 : 1000.0; });
  ASSERT_TRUE(IsLive(v1::STAGE_PLAN));
  EXPECT_EQ(job().tasks[1].best_ns, 1000);
  EXPECT_EQ(job().tasks[2].best_ns, 500) << "the plan stage is told of this";
}

TEST_F(PlanningTest, AContestTakesHalfOfTheTime) {
  SurveyTwoPlans({{"a", 0}, {"b", 1}}, 64, absl::Seconds(100));
  End(v1::STAGE_PLAN, PlanOfTwo({{"a", 1}}, {{"b", 1}}));
  RoundAt(1000);
  EXPECT_LE(dispatcher_.NextWake(now_), absl::FromUnixSeconds(1000) + absl::Seconds(50));
  now_ += absl::Seconds(51);
  Step(Tick{});
  RoundAt(1000);
  ASSERT_TRUE(IsLive(v1::STAGE_PLAN)) << "the round in flight ends, and no other begins";
  End(v1::STAGE_PLAN, PlanOf({{"b", 1}}));
  EXPECT_TRUE(Is<Tuning>(job().phase));
  EXPECT_THAT(Ended(), ElementsAre(true, false));
}

// With few trials a plan would win because it got them, and uniform jobs give each task the same. So the plan stays by
// which the module is judged in the end.
TEST_F(PlanningTest, WithoutTrialsForBothTheEstimatedPlanStays) {
  for (const Allocation allocation : {Allocation::kGradient, Allocation::kUniform}) {
    const int64_t id = ++last_;
    TwoCores();
    JobParams params = Plans(allocation);
    params.force = true;
    params.trials_per_task = allocation == Allocation::kGradient ? 4 : 400;
    Start(id, params, {{"a", 1}, {"b", 0}});
    while (Is<Tuning>(job(id).phase)) RoundAt(1000);
    End(v1::STAGE_PLAN, PlanOfTwo({{"b", 1}, {"d", 1}}, {{"a", 1}, {"c", 1}}));
    EXPECT_FALSE(Contending(job(id)));
    EXPECT_TRUE(job(id).has_estimated_plan);
    ASSERT_EQ(job(id).tasks.size(), 2u) << "nobody would measure \"c\" and \"d\"";
    EXPECT_FALSE(Is<Finished>(job(id).tasks[0].phase));
    EXPECT_TRUE(Is<Finished>(job(id).tasks[1].phase));
    Step(CancelRequested{JobId{id}, ""});
    while (!dispatcher_.live().empty())
      Step(StageFinished{dispatcher_.live().begin()->first, {}, true, {}});
  }
}

// A rival that is not the estimated plan contends with that one, too. All three have a chance until one is clearly beaten; then its
// own tasks get nothing more, and the others go on.
TEST_F(PlanningTest, ABeatenRunnerUpGetsNoMoreTrials) {
  SurveyTwoPlans({{"a", 1}, {"b", 1}, {"c", 0}, {"d", 0}}, 64);
  End(v1::STAGE_PLAN, PlanOfTwo({{"a", 1}, {"c", 1}}, {{"a", 1}, {"d", 2}}));
  EXPECT_TRUE(Contending(job()));
  EXPECT_THAT(Ended(), ElementsAre(false, false, false, false));
  Survey();  // 3000 ns against 2000
  ASSERT_TRUE(IsLive(v1::STAGE_PLAN)) << "half of the pool of 128 is used";
  const std::vector<int> trials = Trials();
  EXPECT_EQ(trials[3], 9) << "the survey, and two rounds of the floor of eight";
  EXPECT_GT(std::min(trials[1], trials[2]), 9);
  EXPECT_GE(trials[0] + trials[1] + trials[2] + trials[3], 64);
  End(v1::STAGE_PLAN, PlanOf({{"a", 1}, {"b", 1}}));
  EXPECT_THAT(Ended(), ElementsAre(false, false, true, true));
}

// Nothing but a beaten plan's task waits: the contest is over, and does not wait for that.
TEST_F(PlanningTest, TheTasksOfABeatenPlanHoldNothingUp) {
  SurveyTwoPlans({{"a", 1}, {"b", 0}}, 64);
  End(v1::STAGE_PLAN, PlanOfTwo({{"b", 1}}, {{"d", 1}}));
  std::vector<int> rounds(3);
  for (int i = 0; i < 100 && Is<Tuning>(job().phase); ++i) {
    if (IsLive(v1::STAGE_UPDATE)) End(v1::STAGE_UPDATE);
    if (!IsLive(v1::STAGE_PROPOSE)) continue;
    const int task = Live(v1::STAGE_PROPOSE).task->value;
    // The searches of the two plans that take alike have nothing to try after two rounds.
    if (task != 2 && ++rounds[static_cast<size_t>(task)] > 2) {
      End(v1::STAGE_PROPOSE, Proposed{0, true});
    } else {
      RoundOf([](TaskIndex of) { return of.value == 2 ? 1500.0 : 1000.0; });
    }
  }
  ASSERT_TRUE(IsLive(v1::STAGE_PLAN));
  EXPECT_THAT(Trials(), ElementsAre(9, 9, 8)) << "less than half of the pool of 64";
}

// Two plans need fewer trials than three.
TEST_F(PlanningTest, WithTooFewTrialsForThreePlansTheRunnerUpIsLeftOut) {
  SurveyTwoPlans({{"a", 1}, {"b", 0}});
  End(v1::STAGE_PLAN, PlanOfTwo({{"b", 1}}, {{"c", 1}}));
  EXPECT_TRUE(Contending(job()));
  ASSERT_EQ(job().tasks.size(), 2u) << "half of 16 trials are two floors of four, and no third";
  EXPECT_EQ(job().tasks[0].rival_weight, 1) << "the estimated plan's";
  EXPECT_EQ(job().tasks[1].rival_weight, 0);
}

// Both plans may have tasks that no survey knew, and the next choice may be another plan.
TEST_F(PlanningTest, APlanThatDidNotContendMayWin) {
  SurveyTwoPlans({{"a", 2}, {"b", 0}, {"c", 0}});
  End(v1::STAGE_PLAN, PlanOfTwo({{"a", 1}, {"d", 1}}, {{"b", 1}, {"e", 1}}));
  ASSERT_EQ(job().tasks.size(), 5u);
  EXPECT_EQ(job().tasks[3].key, "d");
  EXPECT_EQ(job().tasks[4].key, "e");
  EXPECT_EQ(job().tasks[4].weight, 0);
  EXPECT_EQ(job().tasks[4].rival_weight, 1);
  Survey();
  EXPECT_EQ(job().tasks[2].trials, 1);
  EXPECT_GE(job().tasks[4].trials, 4);
  End(v1::STAGE_PLAN, PlanOf({{"c", 1}}));
  EXPECT_THAT(Ended(), ElementsAre(true, true, false, true, true));
  // The others have used as many trials as its pool has. It pays for half of them.
  Survey();
  EXPECT_EQ(job().tasks[2].trials, 8);
}

struct Judgement {
  double low,
      gain;  // of the module over the other one, the least; over that with default schedules
  bool stays;
};
class JudgingTest : public PlanningTest, public ::testing::WithParamInterface<Judgement> {};

// The times of tuned kernels decide which of the two plans is compared as a whole module. The times of the modules decide which
// plan stays.
TEST_P(JudgingTest, ModulesDecideAContestBeforeTheRestIsTuned) {
  const auto& [low, gain, stays] = GetParam();
  SurveyTwoPlans({{"a", 1}, {"b", 1}, {"c", 0}}, 16, absl::InfiniteDuration(), true);
  End(v1::STAGE_PLAN, PlanOfTwo({{"a", 1}, {"c", 1}}, {{"a", 1}, {"b", 1}}));
  Survey();
  const std::vector<int> contest = Trials();
  End(v1::STAGE_PLAN, PlanOf({{"a", 1}, {"c", 1}}));
  EXPECT_TRUE(Compiling());
  EXPECT_TRUE(Judging(job()));
  EXPECT_THAT(Ended(), ElementsAre(false, false, false));
  End(v1::STAGE_COMPILE, Compiled{"tuned", "default", "other", "other default"});
  ASSERT_TRUE(Is<Comparing>(job().phase));
  EXPECT_EQ(Trials(), contest) << "both have had the same chance";
  Compared compared;
  compared.result.mutable_other_gain()->set_low(low);
  compared.result.mutable_gain()->set_ratio(gain);
  End(v1::STAGE_COMPARE, compared);
  EXPECT_TRUE(Is<Tuning>(job().phase));
  EXPECT_FALSE(Contending(job()));
  EXPECT_THAT(Ended(), ElementsAre(false, stays, !stays));
  EXPECT_EQ(job().compared, 0) << "what the job reports is its last module";
  Survey();
  EXPECT_GT(job().tasks[stays ? 2 : 1].trials, contest[stays ? 2 : 1]);
  EXPECT_EQ(job().tasks[stays ? 1 : 2].trials, contest[stays ? 1 : 2]);
  ASSERT_TRUE(IsLive(v1::STAGE_PLAN)) << "once more, with the best times";
}
INSTANTIATE_TEST_SUITE_P(All, JudgingTest,
                         ::testing::Values(Judgement{1.01, 2.0, true}, Judgement{0.99, 2.0, false},
                                           Judgement{1.01, 0.9, false}));

TEST_F(PlanningTest, AModuleThatCannotBeCompiledForAJudgementLeavesTheEstimatedPlan) {
  SurveyTwoPlans({{"a", 1}, {"b", 1}, {"c", 0}}, 16, absl::InfiniteDuration(), true);
  End(v1::STAGE_PLAN, PlanOfTwo({{"a", 1}, {"c", 1}}, {{"a", 1}, {"b", 1}}));
  Survey();
  End(v1::STAGE_PLAN, PlanOf({{"a", 1}, {"c", 1}}));
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(Judging(job())) << i;
    Break(v1::STAGE_COMPILE);
    Wait(absl::Seconds(30));
  }
  EXPECT_TRUE(Is<Tuning>(job().phase));
  EXPECT_THAT(Ended(), ElementsAre(false, false, true));
}

// Whatever keeps the modules from being compared, the job goes on, with the plan that needs no proof.
class UnjudgedTest : public PlanningTest, public ::testing::WithParamInterface<std::string> {};
TEST_P(UnjudgedTest, WithoutAComparisonTheEstimatedPlanIsTuned) {
  const std::string& why = GetParam();
  SurveyTwoPlans({{"a", 1}, {"b", 0}}, 16, absl::InfiniteDuration(), true);
  End(v1::STAGE_PLAN, PlanOfTwo({{"b", 1}}, {{"a", 1}}));
  Survey();
  End(v1::STAGE_PLAN, PlanOf({{"b", 1}}));
  ASSERT_TRUE(Judging(job()));
  if (why == "no module") {
    Step(StageFinished{Live(v1::STAGE_COMPILE).attempt, {v1::FAULT_USER, why}, true, {}});
  } else {
    if (why == "no device") Step(SlotsChanged{{CpuSlot("cpu0", {0})}, ""});
    End(v1::STAGE_COMPILE, Compiled{"tuned", "default", "other", "other default"});
  }
  for (int i = 0; i < 3 && why == "no comparison"; ++i) {
    Step(StageFinished{Live(v1::STAGE_COMPARE).attempt, {v1::FAULT_INFRASTRUCTURE, why}, true, {}});
    Wait(absl::Seconds(30));
  }
  if (why == "no device in time") {
    const AttemptId compare = Live(v1::STAGE_COMPARE).attempt;
    Step(SlotsChanged{{CpuSlot("cpu0", {0})}, ""});
    Step(StageFinished{compare, {v1::FAULT_INFRASTRUCTURE, why}, true, {}, true});
    ASSERT_TRUE(Is<Comparing>(job().phase));
    Wait(absl::Minutes(11));
  }
  EXPECT_TRUE(Is<Tuning>(job().phase));
  EXPECT_TRUE(job().has_estimated_plan);
  EXPECT_THAT(Ended(), ElementsAre(false, true));
  EXPECT_EQ(job().not_compared, "");
}
INSTANTIATE_TEST_SUITE_P(All, UnjudgedTest,
                         ::testing::Values("no module", "no comparison", "no device",
                                           "no device in time"));

TEST_F(PlanningTest, ARestoredJobStillJudges) {
  SurveyTwoPlans({{"a", 1}, {"b", 0}}, 16, absl::InfiniteDuration(), true);
  End(v1::STAGE_PLAN, PlanOfTwo({{"b", 1}}, {{"a", 1}}));
  Survey();
  End(v1::STAGE_PLAN, PlanOf({{"b", 1}}));
  ASSERT_TRUE(Judging(job()));
  Job stored = job();
  stored.id = JobId{7};
  stored.params.force = true;
  stored.live.reset();
  stored.queue.clear();
  for (Task& task : stored.tasks)
    task.phase = WantsUpdate{};  // as a restart finds unlearned results
  Dispatcher restarted(*MakePolicy("round_robin"));
  restarted.Restore(std::move(stored));
  restarted.Step(SlotsChanged{dispatcher_.slots(), ""}, now_);
  const Job& found = *restarted.FindJob(JobId{7});
  EXPECT_TRUE(Judging(found));
  EXPECT_TRUE(found.in_flight.empty()) << "nothing is tuned meanwhile";
  ASSERT_EQ(restarted.live().size(), 1u);
  const auto& [id, stage] = *restarted.live().begin();
  EXPECT_EQ(stage.kind, v1::STAGE_COMPILE);
  restarted.Step(StageFinished{id, {v1::FAULT_USER, "no"}, true, {}}, now_);
  EXPECT_TRUE(Is<Tuning>(found.phase));
  EXPECT_EQ(found.tasks[0].weight, 1);
}

// Ends of a contest that the plan stage does not decide: it fails, or the job is stopped.
TEST_F(PlanningTest, AContestWithoutADecisionKeepsTheEstimatedPlan) {
  SurveyTwoPlans({{"a", 1}, {"b", 0}});
  End(v1::STAGE_PLAN, PlanOfTwo({{"b", 1}}, {{"a", 1}}));
  Survey();
  ASSERT_TRUE(IsLive(v1::STAGE_PLAN));
  Step(StageFinished{Live(v1::STAGE_PLAN).attempt, {v1::FAULT_USER, "no luck"}, true, {}});
  EXPECT_TRUE(Is<Tuning>(job().phase));
  EXPECT_FALSE(Contending(job()));
  EXPECT_THAT(Ended(), ElementsAre(false, true));
}

TEST_F(PlanningTest, AStopDuringAContestPlansOnceAndCompiles) {
  SurveyTwoPlans({{"a", 1}, {"b", 0}}, 64, absl::Seconds(100));
  End(v1::STAGE_PLAN, PlanOfTwo({{"a", 1}}, {{"b", 1}}));
  now_ += absl::Seconds(101);
  Step(Tick{});
  if (IsLive(v1::STAGE_UPDATE)) End(v1::STAGE_UPDATE);
  if (IsLive(v1::STAGE_PROPOSE)) End(v1::STAGE_PROPOSE, Proposed{1, false});
  ASSERT_TRUE(IsLive(v1::STAGE_PLAN));
  EXPECT_FALSE(job().stop.empty());
  End(v1::STAGE_PLAN, PlanOf({{"b", 1}}));
  EXPECT_TRUE(Compiling());
  EXPECT_FALSE(Contending(job()));
}

// A restart in the middle of a contest knows of it, and of what it has used.
TEST_F(PlanningTest, ARestoredJobStillContends) {
  SurveyTwoPlans({{"a", 1}, {"b", 0}});
  End(v1::STAGE_PLAN, PlanOfTwo({{"a", 1}}, {{"b", 1}}));
  Job stored;
  stored.id = JobId{7};
  stored.params = job().params;
  stored.params.force = true;
  stored.phase = Tuning{};
  stored.settled = true;
  for (const Task& task : job().tasks) {
    v1::TaskInfo info;
    info.set_key(task.key);
    info.set_weight(task.weight);
    Task& same = stored.tasks.emplace_back(MakeTask(info, task));
    same.trials = 5;
    same.best_ns = 1000;
  }
  stored.surveys = 1;
  Dispatcher restarted(*MakePolicy("round_robin"));
  restarted.Restore(std::move(stored));
  restarted.Step(SlotsChanged{dispatcher_.slots(), ""}, now_);
  const Job& found = *restarted.FindJob(JobId{7});
  EXPECT_TRUE(Contending(found));
  EXPECT_TRUE(Is<Planning>(found.phase)) << "9 trials of the pool of 16 are more than half";
}

TEST_F(PlanningTest, AFurtherSurveyMeasuresOnlyWhatIsNewAndThereAreAtMostTwo) {
  TwoCores();
  Start(1, Plans(), {{"a", 1}, {"b", 0}});
  Survey();
  End(v1::STAGE_PLAN, PlanOf({{"a", 1}, {"c", 0}}, true));
  EXPECT_TRUE(Surveying(job()));
  EXPECT_EQ(Survey(), 1);
  EXPECT_THAT(Trials(), ElementsAre(1, 1, 1));
  End(v1::STAGE_PLAN, PlanOf({{"c", 1}, {"d", 0}}, true));
  EXPECT_FALSE(Surveying(job())) << "the second survey is the last one";
  Survey();
  EXPECT_THAT(Trials(), ElementsAre(1, 1, 8)) << "\"d\" is never measured";
}

// What is not measured by then is predicted, so that a large survey leaves time to tune.
TEST_F(PlanningTest, ASurveyEndsAtATenthOfTheTimeLimit) {
  TwoCores();
  JobParams params = Plans();
  params.time_limit = absl::Seconds(100);
  params.pipeline_depth = 1;
  Start(1, params, {{"a", 1}, {"b", 1}, {"c", 0}});
  RoundAt(1000);
  EXPECT_TRUE(Is<Tuning>(job().phase));
  now_ += absl::Seconds(11);
  Step(Tick{});
  RoundAt(1000);
  ASSERT_TRUE(IsLive(v1::STAGE_PLAN)) << "the task in flight ends, the last one does not begin";
  EXPECT_THAT(Trials(), ElementsAre(1, 1, 0));
  End(v1::STAGE_PLAN, PlanOf({{"a", 1}, {"c", 1}, {"d", 0}}, true));
  EXPECT_FALSE(Surveying(job())) << "no time is left for a further survey";
  EXPECT_EQ(job().tasks.size(), 3u);
  Survey();
  EXPECT_THAT(Trials(), ElementsAre(8, 1, 8));
}

// Nothing is in flight at that moment: the end comes by itself.
TEST_F(PlanningTest, ASurveyThatWaitsEndsInTime) {
  TwoCores();
  JobParams params = Plans();
  params.time_limit = absl::Seconds(100);
  Start(1, params, {{"a", 1}, {"b", 0}});
  EXPECT_LE(dispatcher_.NextWake(now_), now_ + absl::Seconds(10));
}

TEST_F(PlanningTest, KnownRecordsNeedNoSurvey) {
  TwoCores();
  const KnownRecords known{3, 3, 900, 1000};
  Start(1, Plans(), {{"a", 1, known}, {"b", 0, known}});
  ASSERT_TRUE(IsLive(v1::STAGE_PLAN));
  End(v1::STAGE_PLAN, PlanOf({{"a", 1}}));
  Survey();
  EXPECT_THAT(Trials(), ElementsAre(5, 0));
}

TEST_F(PlanningTest, FaultsOfThePlanStageDoNotFailTheJob) {
  for (const v1::FaultKind kind : {v1::FAULT_USER, v1::FAULT_INFRASTRUCTURE}) {
    const int64_t id = kind == v1::FAULT_USER ? 1 : 2;
    TwoCores();
    JobParams params = Plans();
    params.force = true;  // the second job shares nothing with the first
    Start(id, params, {{"a", 1}, {"b", 0}});
    while (Is<Tuning>(job(id).phase)) RoundAt(1000);
    const int attempts = kind == v1::FAULT_USER ? 1 : 3;
    for (int i = 0; i < attempts; ++i) {
      ASSERT_TRUE(IsLive(v1::STAGE_PLAN)) << i;
      Step(StageFinished{Live(v1::STAGE_PLAN).attempt, {kind, "no luck"}, true, {}});
      now_ += absl::Seconds(30);
      Step(Tick{});
    }
    EXPECT_TRUE(Is<Tuning>(job(id).phase)) << "with the plan that it has";
    EXPECT_FALSE(Surveying(job(id)));
    EXPECT_TRUE(Is<Finished>(job(id).tasks[1].phase));
    Step(CancelRequested{JobId{id}, ""});
    Step(StageFinished{Live(v1::STAGE_UPDATE).attempt, {}, true, {}});
  }
}

// A stage may be what ends its workers, so it is not tried for ever.
TEST_F(PlanningTest, APlanStageThatFellSilentThreeTimesIsGivenUp) {
  TwoCores();
  Start(1, Plans(), {{"a", 1}, {"b", 0}});
  Survey();
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(Is<Planning>(job().phase)) << i;
    ASSERT_TRUE(IsLive(v1::STAGE_PLAN)) << i;
    StageFinished end{
        Live(v1::STAGE_PLAN).attempt, {v1::FAULT_INFRASTRUCTURE, "the lease was lost"}, true, {}};
    end.interrupted = end.silent = true;
    Step(end);
    Wait(absl::Seconds(30));
  }
  EXPECT_TRUE(Is<Tuning>(job().phase)) << "with the plan that it has";
  Survey();
  EXPECT_THAT(Trials(), ElementsAre(8, 1));
}

// A device comes while the survey's round of a task is being proposed, or waits to be. There are records of the task for this
// device already, so the survey needs no trial of it.
class SurveyedMeanwhileTest : public PlanningTest, public ::testing::WithParamInterface<bool> {};

TEST_P(SurveyedMeanwhileTest, ATaskWaitsForThePlanAndIsTunedByIt) {
  const bool proposing = GetParam();
  Step(SlotsChanged{{CpuSlot("cpu0", {0})}, ""});
  JobParams params = Plans();
  params.target = params.record_target = "cuda -arch=sm_90";
  params.threads = 0;
  Step(JobSubmitted{JobId{1}, params});
  End(v1::STAGE_IMPORT, ImportOf({{"a"}}, ""));
  ASSERT_TRUE(IsLive(v1::STAGE_PROPOSE));
  if (!proposing) Break(v1::STAGE_PROPOSE);  // and it is tried again in a while
  answer_finds_ = false;
  Step(SlotsChanged{{CpuSlot("cpu0", {0}), DeviceSlot("cuda0", {}, "g", params.target)}, ""});
  Step(RecordsFound{JobId{1}, "key", {{1, 1, 100}}});
  if (proposing) End(v1::STAGE_PROPOSE, Proposed{1, false});
  EXPECT_FALSE(Is<Finished>(job().tasks[0].phase));
  ASSERT_TRUE(IsLive(v1::STAGE_PLAN));
  End(v1::STAGE_PLAN, PlanOf({{"a", 1}}));
  Wait(absl::Seconds(10));  // for the attempt after the fault
  Survey();
  EXPECT_THAT(Trials(), ElementsAre(7));
}
INSTANTIATE_TEST_SUITE_P(ProposingOrNot, SurveyedMeanwhileTest, ::testing::Bool());

TEST_F(PlanningTest, AStopDuringTheSurveyPlansOnceAndCompiles) {
  TwoCores();
  JobParams params = Plans();
  params.time_limit = absl::Seconds(10);
  Start(1, params, {{"a", 1}, {"b", 0}, {"c", 0}});
  RoundAt(1000);
  now_ += absl::Seconds(11);
  Step(Tick{});
  End(v1::STAGE_PROPOSE, Proposed{1, false});
  ASSERT_TRUE(IsLive(v1::STAGE_PLAN));
  End(v1::STAGE_PLAN, PlanOf({{"b", 1}, {"d", 1}}, true));
  EXPECT_TRUE(Compiling());
  for (const Task& task : job().tasks) EXPECT_TRUE(Is<Finished>(task.phase)) << task.key;
}

// Where the whole module is not surely faster, the job has the plan of its import, and its weights.
TEST_F(PlanningTest, APlanThatIsTakenBackTakesItsWeightsAlong) {
  for (const auto& [low, gain, back] :
       {std::tuple(1.01, 2.0, false), {0.99, 2.0, true}, {1.01, 0.9, true}}) {
    const int64_t id = ++last_;
    TwoCores();
    JobParams params = Plans();
    params.compare = params.force = true;
    Start(id, params, {{"a", 2}, {"b", 1}, {"c", 0}});
    while (Is<Tuning>(job(id).phase)) RoundAt(1000);
    End(v1::STAGE_PLAN, PlanOf({{"a", 1}, {"c", 3}, {"d", 1}}));
    while (Is<Tuning>(job(id).phase)) RoundAt(1000);
    End(v1::STAGE_PLAN, PlanOf({{"a", 1}, {"c", 3}, {"d", 1}}));
    End(v1::STAGE_COMPILE, Compiled{"tuned", "default", "other", "other default"});
    Compared compared;
    compared.result.mutable_other_gain()->set_low(low);
    compared.result.mutable_gain()->set_ratio(gain);
    const Decisions decisions = End(v1::STAGE_COMPARE, compared);
    EXPECT_TRUE(Is<Done>(job(id).phase));
    std::vector<int> weights;
    for (const Task& task : job(id).tasks) weights.push_back(task.weight);
    const std::vector<int> chosen = {1, 0, 3, 1}, estimated = {2, 1, 0, 0};
    EXPECT_EQ(weights, back ? estimated : chosen) << id;
    EXPECT_EQ(job(id).has_estimated_plan, back) << id;
    EXPECT_EQ(Count<TaskChanged>(decisions), back ? 4 : 0);
  }
}

// Plans with the same tasks may differ in the order of these, and so in what is still in a cache. The one that was chosen stays until
// the whole module turns out not to be faster.
TEST_F(PlanningTest, APlanWithTheTasksOfTheEstimatedOneIsAnotherPlan) {
  for (const bool back : {false, true}) {
    const int64_t id = ++last_;
    TwoCores();
    JobParams params = Plans();
    params.compare = params.force = true;
    Start(id, params, {{"a", 2}, {"b", 0}});
    EXPECT_TRUE(job(id).has_estimated_plan);
    while (Is<Tuning>(job(id).phase)) RoundAt(1000);
    End(v1::STAGE_PLAN, PlanOf({{"a", 2}}));
    EXPECT_TRUE(HasEstimatedTasks(job(id)));
    EXPECT_FALSE(job(id).has_estimated_plan);
    while (Is<Tuning>(job(id).phase)) RoundAt(1000);
    End(v1::STAGE_PLAN, PlanOf({{"a", 2}}));
    EXPECT_FALSE(job(id).has_estimated_plan);
    End(v1::STAGE_COMPILE, Compiled{"tuned", "default", "other", "other default"});
    Compared compared;
    compared.result.mutable_other_gain()->set_low(back ? 0.99 : 1.01);
    compared.result.mutable_gain()->set_ratio(2);
    End(v1::STAGE_COMPARE, compared);
    EXPECT_TRUE(Is<Done>(job(id).phase));
    EXPECT_EQ(job(id).has_estimated_plan, back);
  }
}

TEST_F(PlanningTest, AModelWithoutTasksHasNothingToPlan) {
  TwoCores();
  Start(1, Plans(), {});
  EXPECT_TRUE(Compiling());
  EXPECT_FALSE(Surveying(job()));
}

// The import found nothing that a measurement would choose.
TEST_F(PlanningTest, AnImportWithoutASurveyTunesAtOnce) {
  TwoCores();
  Imported imported = ImportOf({{"a", 1}, {"b", 1}}, "key");
  imported.model.set_surveyed(false);
  Step(JobSubmitted{JobId{1}, Plans()});
  End(v1::STAGE_IMPORT, imported);
  EXPECT_FALSE(Surveying(job()));
  EXPECT_EQ(Survey(), 4);
  EXPECT_THAT(Trials(), ElementsAre(8, 8));
  EXPECT_TRUE(Compiling()) << "no plan stage comes after tuning";
}

TEST_F(PlanningTest, WithoutPlansThereIsNoSurvey) {
  TwoCores();
  JobParams params = Plans();
  params.plan = false;
  Start(1, params, {{"a", 1}});
  Survey();
  EXPECT_THAT(Trials(), ElementsAre(8));
  EXPECT_TRUE(Compiling());
}

// A surveyed task that waits for the plan is a partner of the same task in another job.
TEST_F(PlanningTest, JobsShareTheTasksOfTheirPlans) {
  Step(SlotsChanged{{CpuSlot("cpu0", {0}), CpuSlot("cpu2", {2}), DeviceSlot("p1", {1})}, ""});
  Start(1, Plans(), {{"a", 1}, {"b", 0}});
  Survey();
  ASSERT_TRUE(IsLive(v1::STAGE_PLAN));
  Start(2, Plans(), {{"b", 1}, {"c", 0}});
  EXPECT_EQ(job(2).tasks[0].known.total, 1);
  const StartStage propose = Live(v1::STAGE_PROPOSE);
  EXPECT_EQ(propose.job, JobId{2});
  EXPECT_EQ(propose.task, TaskIndex{1}) << "the survey of \"b\" is made";
  EXPECT_EQ(propose.count, 1);
}

}  // namespace
}  // namespace heddle::scheduler
