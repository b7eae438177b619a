// The machines of the dispatcher, each by itself: no dispatcher, no policy, no other machine.
#include <algorithm>
#include <cmath>
#include <random>

#include "scheduler/core/machines/candidate_flow.h"
#include "scheduler/core/machines/contest.h"
#include "scheduler/core/machines/deadlines.h"
#include "scheduler/core/machines/fetches.h"
#include "scheduler/core/machines/placement.h"
#include "scheduler/core/machines/ready_stages.h"
#include "scheduler/core/machines/rounds.h"
#include "scheduler/core/machines/sharing.h"
#include "scheduler/core/machines/trial_budget.h"
#include "tests/scheduler/core/dispatcher_fixture.h"

namespace heddle::scheduler {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class MachinesTest : public ::testing::Test {
 protected:
  MachinesTest() { effects_.BeginStep(now_); }
  // A job that is being tuned on device key "key", with tasks of these workloads, all waiting.
  Job& Add(int64_t id, const std::vector<std::string>& workloads) {
    Job& job = jobs_[JobId{id}];
    job.id = JobId{id};
    job.params.target = job.params.record_target = kTarget;
    job.params.device_key = "key";
    job.params.trials_per_task = 8;
    job.params.batch = 4;
    job.phase = Tuning{};
    for (const std::string& workload : workloads) {
      job.queue.push_back(TaskIndex{static_cast<int>(job.tasks.size())});
      job.tasks.emplace_back().key = workload;
    }
    return job;
  }
  // Candidates 1..n of the first task are a round in this state, in flight.
  template <typename State>
  Task& Fly(Job& job, int candidates, State state) {
    Task& task = job.tasks[0];
    task.phase = Measuring{};
    for (int i = 1; i <= candidates; ++i) task.open[CandidateId{i}] = {0, state};
    task.rounds.push_back({CandidateId{1}, CandidateId{candidates + 1}, candidates, candidates});
    std::erase(job.queue, TaskIndex{0});
    job.in_flight.push_back(TaskIndex{0});
    job.next_candidate = candidates + 1;
    return task;
  }
  LiveStage& Run(int64_t attempt, Job& job, v1::StageKind kind, CandidateId before = {}) {
    LiveStage& stage = live_[AttemptId{attempt}];
    stage.id = AttemptId{attempt};
    stage.job = job.id;
    stage.kind = kind;
    stage.task = TaskIndex{0};
    stage.before = before;
    job.stages.insert(stage.id);
    if (kind == v1::STAGE_PROFILE) job.tasks[0].profiles.insert(stage.id);
    return stage;
  }
  Decisions Take() {
    Decisions decisions = effects_.EndStep();
    effects_.BeginStep(now_);
    return decisions;
  }

  absl::Time now_ = absl::FromUnixSeconds(1000);
  Jobs jobs_;
  LiveStages live_;
  Effects effects_;
};

// ---- trial budget ----

TEST_F(MachinesTest, AUniformTaskMayMeasureWhatIsNotKnown) {
  Job& job = Add(1, {"a", "b"});
  job.params.allocation = Allocation::kUniform;
  job.tasks[0].known.total = 5;
  EXPECT_EQ(Allowance(job, job.tasks[0]), 3);
  EXPECT_EQ(Allowance(job, job.tasks[1]), 8);
  job.tasks[0].known.total = 9;
  EXPECT_TRUE(NothingLeft(job, job.tasks[0]));
  job.params.force = true;
  EXPECT_EQ(Allowance(job, job.tasks[0]), 8) << "with force nothing known counts";
}

TEST_F(MachinesTest, AGrantLeavesOthersTheirFloor) {
  Job& job = Add(1, {"a", "b", "c"});
  const std::vector<bool> nobody(3);
  EXPECT_EQ(TrialBudget(job, {}), 24);
  EXPECT_EQ(PoolLeft(job, {}), 24);
  EXPECT_EQ(GrantFor(job, TaskIndex{0}, TrialFloor(job), PoolLeft(job, {}), nobody), 4);
  job.tasks[0].budget = 16;
  EXPECT_EQ(GrantFor(job, TaskIndex{0}, TrialFloor(job), PoolLeft(job, {}), nobody), 0);
  EXPECT_EQ(GrantFor(job, TaskIndex{1}, TrialFloor(job), PoolLeft(job, {}), nobody), 4);
}

// A plan of few tasks that wins a contest of two large ones still has half of its pool.
TEST_F(MachinesTest, ThePoolPaysForOthersOnlyInPart) {
  Job& job = Add(1, {"a", "b", "c"});
  job.tasks[1].weight = job.tasks[2].weight = 0;
  job.tasks[0].budget = 1;
  job.tasks[1].budget = 3;
  EXPECT_EQ(PoolLeft(job, {}), 8 - 1 - 2) << "the first trial of another task was the survey's";
  EXPECT_EQ(TrialBudget(job, {}), 8 + 1);
  job.tasks[1].budget = job.tasks[2].budget = 9;
  EXPECT_EQ(PoolUsed(job), 1 + 8 + 8);
  EXPECT_EQ(PoolLeft(job, {}), 8 - 1 - 4);
  EXPECT_EQ(TrialBudget(job, {}), 8 + 2 + 12) << "what was measured was measured";
  EXPECT_EQ(PoolLeft(job, {.losers_share = 0.25}), 8 - 1 - 2);
}

// ---- contest ----

// Whatever plans and times a job has: what the plans are worth adds up to one plan, the fastest has a chance, a plan that is clearly
// beaten has none, and the estimated one loses nothing before that.
TEST_F(MachinesTest, ChancesOfPlans) {
  std::mt19937 random(1);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  const DispatcherOptions options;
  int beaten = 0, clear = 0;
  for (int i = 0; i < 2000; ++i) {
    Job& job = Add(i, {"all", "chosen", "rival", "estimated"});
    job.params.plan = true;
    std::vector<double> ns(3);  // of the chosen plan, the rival and the estimated plan
    for (Task& task : job.tasks) {
      const bool all = task.key == "all";
      task.weight = all || task.key == "chosen" ? 1 : 0;
      task.rival_weight = all || task.key == "rival" ? 1 : 0;
      task.estimated_weight = all || task.key == "estimated" ? 1 : 0;
      task.best_ns = 800 + below(400);
      task.trials = 4;  // the floor
      ns[0] += task.weight * task.best_ns;
      ns[1] += task.rival_weight * task.best_ns;
      ns[2] += task.estimated_weight * task.best_ns;
    }
    const double least = *std::min_element(ns.begin(), ns.end());
    const PlanChances found = ChancesOf(job, options);
    const std::vector<double> chances = {found.chosen, found.rival, found.estimated};
    int left = 0;
    for (size_t p = 0; p < 3; ++p) {
      const double behind = ns[p] / least;
      EXPECT_GE(chances[p], 0);
      // Just there, rounding decides.
      if (std::abs(behind - options.contest_clear) > 1e-9) {
        EXPECT_EQ(chances[p] == 0, behind > options.contest_clear) << behind;
      }
      if (found.estimated > 0) {
        EXPECT_GE(found.estimated, chances[p]);
      }
      left += chances[p] > 0;
    }
    beaten += 3 - left;
    clear += found.clear;
    EXPECT_EQ(found.clear, left == 1);
    EXPECT_NEAR(chances[0] + chances[1] + chances[2], 1, 1e-12);
    EXPECT_NEAR(ExpectedUses(job.tasks[0], found), 1, 1e-12) << "in full";
    EXPECT_EQ(ExpectedUses(job.tasks[2], found), found.rival);
    // Before the floor, nobody is beaten.
    job.tasks[1].trials = job.tasks[2].trials = job.tasks[3].trials = 3;
    const PlanChances early = ChancesOf(job, options);
    EXPECT_DOUBLE_EQ(early.chosen, 1.0 / 3);
    EXPECT_DOUBLE_EQ(early.rival, 1.0 / 3);
    EXPECT_FALSE(early.clear);
  }
  EXPECT_GT(beaten, 100);
  EXPECT_GT(clear, 100);
}

TEST_F(MachinesTest, ARivalThatIsTheEstimatedPlanIsNoThirdOne) {
  Job& job = Add(1, {"a", "b"});
  job.params.plan = true;
  job.tasks[1].weight = 0;
  job.tasks[1].rival_weight = job.tasks[1].estimated_weight = 2;
  PlanChances chances = ChancesOf(job, {});
  EXPECT_EQ(chances.chosen, 0.5);
  EXPECT_EQ(chances.estimated, 0.5);
  EXPECT_EQ(ExpectedUses(job.tasks[1], chances), 1);
  for (Task& task : job.tasks) task.trials = 4;
  job.tasks[0].best_ns = 2100;
  job.tasks[1].best_ns = 1000;
  chances = ChancesOf(job, {});
  EXPECT_NEAR(chances.chosen, 0.5 / 1.5, 1e-9) << "half way to clearly beaten";
  job.tasks[1].best_ns = 1100;
  EXPECT_EQ(ChancesOf(job, {}).estimated, 0.5) << "it is the slower one, and keeps its share";
  job.tasks[1].best_ns = 1200;
  EXPECT_EQ(ChancesOf(job, {}).estimated, 0) << "clearly";
  EXPECT_TRUE(ChancesOf(job, {}).clear);
}

TEST_F(MachinesTest, OnePlanHasAllChances) {
  Job& job = Add(1, {"a", "b"});
  job.params.plan = true;
  job.tasks[0].weight = 3;
  job.tasks[1].weight = 0;
  job.tasks[1].estimated_weight = 7;
  const PlanChances chances = ChancesOf(job, {});
  EXPECT_EQ(ExpectedUses(job.tasks[0], chances), 3);
  EXPECT_EQ(ExpectedUses(job.tasks[1], chances), 0);
  EXPECT_FALSE(chances.clear);
}

// ---- sharing ----

TEST_F(MachinesTest, ATrialIsKnownToPartnersAlone) {
  Sharing sharing(&jobs_, &effects_);
  const std::vector<std::string> workloads = {"a"};
  Job &one = Add(1, workloads), &two = Add(2, workloads), &elsewhere = Add(3, workloads);
  elsewhere.params.device_key = "other";
  for (Job* job : {&one, &two, &elsewhere}) sharing.Join(*job);
  sharing.ShareTrial(one, TaskIndex{0}, true, 100);
  EXPECT_EQ(two.tasks[0].known.total, 1);
  EXPECT_EQ(two.tasks[0].best_ns, 100);
  EXPECT_TRUE(two.tasks[0].unlearned.others);
  EXPECT_EQ(one.tasks[0].known.total, 0);
  EXPECT_EQ(elsewhere.tasks[0].known.total, 0);
  EXPECT_THAT(effects_.TakeTold(), ElementsAre(JobId{2}));
}

TEST_F(MachinesTest, OnePartnerAtATimeHasARoundInFlight) {
  Sharing sharing(&jobs_, &effects_);
  Job &one = Add(1, {"a"}), &two = Add(2, {"a"});
  Fly(one, 2, Unbuilt{});
  sharing.Join(one);
  sharing.Join(two);
  EXPECT_TRUE(sharing.PartnerInFlight(two, TaskIndex{0}));
  EXPECT_FALSE(sharing.PartnerInFlight(one, TaskIndex{0}));
  one.paused.emplace();
  EXPECT_FALSE(sharing.PartnerInFlight(two, TaskIndex{0}));
  one.paused.reset();
  sharing.Leave(one);
  EXPECT_FALSE(sharing.PartnerInFlight(two, TaskIndex{0}));
}

// Whatever begins, ends, pauses or gets a device: a partner is in flight if a look at all tasks finds one.
TEST_F(MachinesTest, PartnersInFlightAreThoseOfALookAtAllTasks) {
  Sharing sharing(&jobs_, &effects_);
  std::mt19937_64 random(1);
  auto below = [&](size_t n) { return random() % n; };
  std::map<JobId, Job*> sharers;
  for (int64_t id = 1; id <= 8; ++id) {
    Job& job = Add(id, {"a", id % 2 == 0 ? "b" : "c"});
    if (id % 3 == 0) job.params.device_key = "";
    if (id % 4 == 0) Fly(job, 1, Unbuilt{});
    sharing.Join(job);
    sharers[job.id] = &job;
  }
  int found = 0;
  for (int i = 0; i < 3000; ++i) {
    Job& job = *sharers.at(JobId{1 + static_cast<int64_t>(below(8))});
    const TaskIndex index{static_cast<int>(below(2))};
    TaskPhase& phase = job.tasks[static_cast<size_t>(index.value)].phase;
    if (Is<Finished>(phase)) continue;
    switch (below(8)) {
      case 0:
        if (std::exchange(job.paused, std::nullopt) == std::nullopt) job.paused.emplace();
        break;
      case 1:
        if (below(20) == 0) job.params.device_key = "key";
        break;
      case 2:
        if (below(100) > 0) break;
        phase = Finished{};
        sharing.Leave(job, index);
        break;
      default:
        if (Is<Waiting>(phase)) {
          sharing.CatchUp(job, index);
          phase = WantsPropose{};
        } else {
          phase = Waiting{};
          sharing.EndRounds(job, index);
        }
    }
    for (const auto& [id, one] : sharers) {
      for (size_t t = 0; t < one->tasks.size(); ++t) {
        bool any = false;
        for (const auto& [other_id, other] : sharers) {
          for (size_t u = 0; u < other->tasks.size(); ++u) {
            const bool may = one->params.device_key.empty() || other->params.device_key.empty() ||
                             one->params.device_key == other->params.device_key;
            any |= std::pair(id, t) != std::pair(other_id, u) && may && !other->paused &&
                   one->tasks[t].key == other->tasks[u].key && InFlight(other->tasks[u]);
          }
        }
        if (Is<Finished>(one->tasks[t].phase)) continue;
        ASSERT_EQ(sharing.PartnerInFlight(*one, TaskIndex{static_cast<int>(t)}), any)
            << "j" << id.value << " task " << t << ", step " << i;
        found += any;
      }
    }
  }
  EXPECT_GT(found, 100);
}

// ---- candidate flow ----

TEST_F(MachinesTest, BuiltCandidatesGoToTheShortestQueueAndInputsCloseAfterTheLastBuild) {
  CandidateFlow flow(&jobs_, &live_, &effects_);
  Job& job = Add(1, {"a"});
  Task& task = Fly(job, 5, Built{});
  task.open[CandidateId{5}].where = Building{AttemptId{7}};
  Run(8, job, v1::STAGE_PROFILE, CandidateId{6}).candidates = {CandidateId{99}};
  Run(9, job, v1::STAGE_PROFILE, CandidateId{6});
  flow.Note(job.id, TaskIndex{0});
  flow.FeedShortQueues();
  EXPECT_EQ(live_[AttemptId{8}].candidates.size(), 2u) << "a short queue is of two";
  EXPECT_EQ(live_[AttemptId{9}].candidates.size(), 2u);
  EXPECT_THAT(flow.FeedAndClose(), ElementsAre(job.id));
  EXPECT_EQ(Count<FeedProfile>(Take()), 4);
  EXPECT_FALSE(live_[AttemptId{8}].input_closed) << "one is being built";
  task.open[CandidateId{5}].where = Built{};
  flow.Note(job.id, TaskIndex{0});
  flow.FeedAndClose();
  EXPECT_EQ(Count<CloseProfile>(Take()), 2);
}

TEST_F(MachinesTest, AProfileStageTakesNoCandidatesOfLaterRounds) {
  CandidateFlow flow(&jobs_, &live_, &effects_);
  Job& job = Add(1, {"a"});
  Fly(job, 2, Built{});
  Run(8, job, v1::STAGE_PROFILE, CandidateId{1});
  flow.Note(job.id, TaskIndex{0});
  EXPECT_THAT(flow.FeedAndClose(), IsEmpty());
}

// ---- rounds ----

TEST_F(MachinesTest, ARoundThatIsMeasuredWantsAnUpdate) {
  const DispatcherOptions options;
  const SlotIndex slots;
  Sharing sharing(&jobs_, &effects_);
  Rounds rounds(&options, &slots, &sharing, &live_, &effects_);
  Job& job = Add(1, {"a"});
  Task& task = Fly(job, 2, Built{});
  task.budget = 2;
  auto finish = [&](int id, v1::Outcome outcome) {
    rounds.FinishTrial(job, TaskIndex{0}, CandidateId{id}, AttemptId{8}, outcome, "no", 100);
  };
  finish(1, v1::OUTCOME_OK);
  EXPECT_TRUE(Is<Measuring>(task.phase));
  finish(2, v1::OUTCOME_RUN_CRASH);
  EXPECT_TRUE(Is<WantsUpdate>(task.phase));
  EXPECT_TRUE(task.unlearned.own);
  EXPECT_EQ(task.failed, 1);
  job.stop = "enough";
  rounds.Drain(job, TaskIndex{0});
  EXPECT_TRUE(Is<Finished>(task.phase));
  EXPECT_TRUE(Is<Compiling>(job.phase)) << "it was the only task";
}

TEST_F(MachinesTest, AJobThatEndsCancelsItsStagesAlone) {
  const DispatcherOptions options;
  const SlotIndex slots;
  Sharing sharing(&jobs_, &effects_);
  Rounds rounds(&options, &slots, &sharing, &live_, &effects_);
  Job &one = Add(1, {"a"}), &two = Add(2, {"b"});
  Run(7, one, v1::STAGE_BUILD);
  Run(8, two, v1::STAGE_BUILD);
  Run(9, one, v1::STAGE_PROFILE);
  rounds.EndJob(one, Cancelled{"enough"});
  EXPECT_TRUE(live_[AttemptId{7}].cancelled);
  EXPECT_FALSE(live_[AttemptId{8}].cancelled);
  EXPECT_TRUE(live_[AttemptId{9}].cancelled);
  EXPECT_EQ(Count<CancelStage>(Take()), 2);
  rounds.EndJob(one, Cancelled{"again"});
  EXPECT_EQ(Count<CancelStage>(Take()), 0) << "once each";
}

TEST_F(MachinesTest, ReadyStagesFeedTheDeviceFirst) {
  Job& job = Add(1, {"a"});
  Task& task = Fly(job, 2, Built{});
  task.open[CandidateId{2}].where = Unbuilt{};
  auto kinds = [&](BuildRoom room = BuildRoom::kMany) {
    std::vector<v1::StageKind> kinds;
    for (const ReadyIndex::Item& item : ReadyStages(job, {}, room, &effects_))
      kinds.push_back(item.work.kind);
    return kinds;
  };
  EXPECT_THAT(kinds(), ElementsAre(v1::STAGE_PROFILE, v1::STAGE_BUILD));
  EXPECT_THAT(kinds(BuildRoom::kOne), ElementsAre(v1::STAGE_PROFILE)) << "it has code already";
  task.open[CandidateId{1}].where = Unbuilt{};
  EXPECT_THAT(kinds(BuildRoom::kOne), ElementsAre(v1::STAGE_BUILD));
  EXPECT_THAT(kinds(BuildRoom::kNone), IsEmpty());
  task.not_before = now_ + absl::Seconds(1);
  EXPECT_THAT(kinds(), IsEmpty());
  EXPECT_EQ(effects_.NextWake(), task.not_before);
}

// ---- deadlines ----

TEST_F(MachinesTest, AnEstimateIsToldOnceUntilItChanges) {
  Deadlines deadlines;
  Job& job = Add(1, {"a"});
  job.params.deadline = now_ + absl::Minutes(10);
  absl::Time end = now_ + absl::Minutes(5);
  auto told = [&] {
    deadlines.Check(
        job, [&] { return end; }, &effects_);
    return All<DeadlineEstimate>(Take());
  };
  EXPECT_EQ(told().size(), 1u);
  now_ += absl::Minutes(1);
  effects_.BeginStep(now_);
  EXPECT_THAT(told(), IsEmpty());
  now_ += absl::Minutes(1);
  effects_.BeginStep(now_);
  end = now_ + absl::Hours(1);
  const std::vector<DeadlineEstimate> late = told();
  ASSERT_EQ(late.size(), 1u);
  EXPECT_TRUE(late[0].late);
  EXPECT_EQ(deadlines.EstimatedEnd(job.id), end);
}

// ---- fetches ----

TEST_F(MachinesTest, AFetchIsTriedAgainAndThenGivenUp) {
  const DispatcherOptions options;
  Fetches fetches;
  Job& job = Add(1, {"a"});
  fetches.Request({FetchId{1}, job.id}, &job, &effects_);
  const StageFinished broken{AttemptId{1}, {v1::FAULT_INFRASTRUCTURE, "it broke"}, true, {}};
  for (int i = 1; i < options.max_attempts; ++i)
    fetches.StageEnded(FetchId{1}, broken, options, &effects_);
  EXPECT_GT(fetches.Of(job.id).at(FetchId{1}).not_before, now_);
  EXPECT_EQ(Count<EndFetch>(Take()), 0);
  fetches.StageEnded(FetchId{1}, broken, options, &effects_);
  EXPECT_EQ(Count<EndFetch>(Take()), 1);
  EXPECT_THAT(fetches.Of(job.id), IsEmpty());
  fetches.Request({FetchId{2}, JobId{9}}, nullptr, &effects_);
  EXPECT_EQ(Count<EndFetch>(Take()), 1) << "no such job";
}

// ---- placement ----

TEST_F(MachinesTest, RefusedSlotsAreLeftAloneForLonger) {
  const DispatcherOptions options;
  Placement placement;
  EXPECT_FALSE(placement.tracker_problem().empty());
  const SlotsChanged event{{CpuSlot("cpu0", {0})}, ""};
  EXPECT_TRUE(placement.TakeSlots(event, now_));
  EXPECT_FALSE(placement.TakeSlots(event, now_)) << "the same list";
  const SlotInfo& slot = placement.slots()[0];
  EXPECT_TRUE(placement.IsFree(slot));
  LiveStage stage;
  stage.slot = slot.id;
  stage.host = slot.host;
  stage.cores = slot.cores;
  placement.slot_index().Hold(slot.id, slot.host, slot.cores);
  EXPECT_FALSE(placement.IsFree(slot));
  const StageFinished refused{AttemptId{1}, {v1::FAULT_INFRASTRUCTURE, "busy"}, false, {}};
  placement.StageEnded(stage, refused, options, now_);
  EXPECT_EQ(placement.Refusal(slot.id), "busy");
  EXPECT_EQ(placement.BacksOffUntil(slot.id), now_ + options.slot_backoff);
  placement.slot_index().Hold(slot.id, slot.host, slot.cores);
  placement.StageEnded(stage, refused, options, now_);
  EXPECT_EQ(placement.BacksOffUntil(slot.id), now_ + 2 * options.slot_backoff);
  EXPECT_FALSE(placement.IsFree(slot));
}

}  // namespace
}  // namespace heddle::scheduler
