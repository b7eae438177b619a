// How simulated stages run, what workers answer, and what chaos does to them.
#include "scheduler/sim/world/workers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "scheduler/sim/world/chaos.h"

namespace heddle::sim {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// One job with one task on one host: a CPU slot and a device slot. Every stage takes 2 s, or 2 s a
// candidate.
class WorkersTest : public ::testing::Test {
 protected:
  static Scenario MakeScenario() {
    Scenario scenario;
    scenario.slots.resize(2);
    for (int i = 0; i < 2; ++i) {
      SlotInfo& slot = scenario.slots[static_cast<size_t>(i)].info;
      slot.id = {"w", i == 0 ? "cpu0" : "profile1"};
      slot.host = std::string("h");
      slot.device = i == 1;
      slot.cores = {i};
    }
    SimJob job;
    for (StageTime& time : job.times) time.seconds.a = 2;
    for (v1::StageKind kind : {v1::STAGE_BUILD, v1::STAGE_PROFILE})
      job.times[kind].per_candidate = true;
    job.tasks.resize(1);
    job.tasks[0].times = job.times;
    scenario.jobs = {job};
    return scenario;
  }
  void SetUp() override {
    result_.busy.resize(2);
    result_.held.resize(2);
    result_.jobs.resize(1);
    Workers::Hooks hooks;
    hooks.tell = [this](int, const Event& event) {
      if (const auto* end = std::get_if<StageFinished>(&event)) workers_->Release(end->attempt);
      Log(event);
    };
    hooks.tell_late = [this](int, const StartStage&, const Event& event) {
      log_.push_back("late");
      Log(event);
    };
    hooks.lied = [this](const SlotId& slot) { chaos_->Lied(slot); };
    workers_ = std::make_unique<Workers>(
        scenario_, Workers::Options{false, true, true}, &agenda_, &dice_, machines_, &searches_,
        [this](int) -> Promises& { return promises_; }, &result_, hooks);
    Chaos::Hooks chaos;
    chaos.report_slots = [this] { log_.push_back("slots"); };
    chaos_ =
        std::make_unique<Chaos>(scenario_, &agenda_, &dice_, &machines_, workers_.get(), chaos);
  }
  void Log(const Event& event) {
    const double at = agenda_.Since(agenda_.now());
    if (const auto* started = std::get_if<CandidateStarted>(&event)) {
      log_.push_back(absl::StrCat(at, " started ", started->candidate.value));
    } else if (const auto* built = std::get_if<CandidateBuilt>(&event)) {
      log_.push_back(
          absl::StrCat(at, " built ", built->candidate.value, " ",
                       built->artifact == nullptr ? "" : built->artifact->shared_object()));
    } else if (const auto* profiled = std::get_if<CandidateProfiled>(&event)) {
      log_.push_back(absl::StrCat(at, " profiled ", profiled->candidate.value));
    } else if (const auto* end = std::get_if<StageFinished>(&event)) {
      log_.push_back(absl::StrCat(at, " end ", end->fault.message, end->started ? "" : " refused"));
    }
  }
  void Begin(v1::StageKind kind, StageWork work, Workers::Fetch fetch = nullptr) {
    StartStage start;
    start.attempt = AttemptId{1};
    start.job = JobId{1};
    start.kind = kind;
    start.task = TaskIndex{0};
    start.slot = scenario_.slots[kind == v1::STAGE_PROFILE].info.id;
    workers_->Begin(0, start, std::move(work), std::move(fetch));
  }
  void RunFor(double seconds) {
    const absl::Time end = agenda_.now() + absl::Seconds(seconds);
    bool over = false;
    agenda_.At(absl::Seconds(seconds), [&] { over = true; });
    while (!over) agenda_.Next()();
    ASSERT_EQ(agenda_.now(), end);
  }

  const Scenario scenario_ = MakeScenario();
  Agenda agenda_;
  Dice dice_{1};
  Machines machines_{scenario_};
  Searches searches_{scenario_, &dice_, true};
  RunningStages none_;
  Promises promises_{scenario_, "round_robin", agenda_,
                     machines_, none_,         [](const std::string& what) { FAIL() << what; }};
  WorldResult result_;
  std::unique_ptr<Workers> workers_;
  std::unique_ptr<Chaos> chaos_;
  std::vector<std::string> log_;
};

TEST_F(WorkersTest, ABuildStageAnswersCandidateByCandidate) {
  StageWork work;
  work.inputs = {{CandidateId{1}, 0, "a"}, {CandidateId{2}, 1, "b"}};
  Begin(v1::STAGE_BUILD, work);
  EXPECT_TRUE(workers_->Holds(scenario_.slots[0].info.id));
  RunFor(10);
  EXPECT_THAT(log_, ElementsAre("0 started 1", "2 built 1 code of a", "2 started 2",
                                "4 built 2 code of b", "4 end "));
  EXPECT_THAT(workers_->running(), IsEmpty());
  EXPECT_DOUBLE_EQ(result_.busy[0], 4);
  EXPECT_DOUBLE_EQ(result_.jobs[0].service, 4);
  ASSERT_EQ(result_.stages.size(), 1u);
}

TEST_F(WorkersTest, AProfileStageWaitsForInputUntilThatIsClosed) {
  Begin(v1::STAGE_PROFILE, {});
  RunFor(5);
  EXPECT_TRUE(workers_->Feed(AttemptId{1}, {CandidateId{1}, 0, "a"}));
  RunFor(5);
  EXPECT_THAT(log_, ElementsAre("5 started 1", "7 profiled 1"));
  workers_->CloseInput(AttemptId{1});
  EXPECT_FALSE(workers_->Feed(AttemptId{1}, {CandidateId{2}, 1, "b"}));
  RunFor(1);
  EXPECT_EQ(log_.back(), "10 end ");
}

TEST_F(WorkersTest, WorkIsFetchedWhenTheWorkerTakesTheStage) {
  int fetched = 0;
  Begin(v1::STAGE_UPDATE, {}, [&](StageWork*) { ++fetched; });
  EXPECT_EQ(fetched, 0);
  RunFor(1);
  EXPECT_EQ(fetched, 1);
}

TEST_F(WorkersTest, ADeadWorkerRefuses) {
  machines_.dead.insert("w");
  Begin(v1::STAGE_BUILD, {});
  RunFor(1);
  EXPECT_THAT(log_, ElementsAre("0 end no lease refused"));
}

TEST_F(WorkersTest, AGhostAnswersAfterItsLifeAndNothingElseDoes) {
  StageWork work;
  work.inputs = {{CandidateId{1}, 0, "a"}, {CandidateId{2}, 1, "b"}};
  Begin(v1::STAGE_BUILD, work);
  RunFor(1);
  workers_->LeaveGhost(AttemptId{1});
  workers_->EndLife(0);
  agenda_.BeginLife(0);
  log_.clear();
  RunFor(30);
  EXPECT_EQ(std::count(log_.begin(), log_.end(), "late") % 2, 0);  // two, or two ghosts
  EXPECT_GE(log_.size(), 4u);
  for (size_t i = 0; i + 1 < log_.size(); i += 2) EXPECT_EQ(log_[i], "late");
}

TEST_F(WorkersTest, ADeviceThatLiesIsQuarantinedAfterAFewMeasurements) {
  const SlotId slot = scenario_.slots[1].info.id;
  machines_.lying.insert(slot);
  StageWork work;
  for (int i = 1; i <= 5; ++i) work.inputs.push_back({CandidateId{i}, i, "a"});
  Begin(v1::STAGE_PROFILE, work);
  RunFor(9);
  EXPECT_FALSE(machines_.quarantined.count(slot));
  RunFor(2);
  EXPECT_TRUE(machines_.quarantined.count(slot));
  EXPECT_EQ(std::count(log_.begin(), log_.end(), "slots"), 1);
  RunFor(120);  // its canary has passed
  EXPECT_FALSE(machines_.quarantined.count(slot));
}

}  // namespace
}  // namespace heddle::sim
