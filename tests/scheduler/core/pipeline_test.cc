// Rounds of one task in flight together: proposing goes on while the device measures, by a model
// that lags behind no more than the depth allows.
#include "tests/scheduler/core/dispatcher_fixture.h"

namespace heddle::scheduler {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

class PipelineTest : public DispatcherTest {
 protected:
  void Start(int depth, int trials = 12, int tasks = 1) {
    TwoCores();
    Submit(1, trials, 4, 1, depth);
    Import(tasks);
    End(v1::STAGE_PROPOSE, Proposed{4, false});
  }
  void Build(int first, int count = 4) {
    for (int id = first; id < first + count; ++id) Built(CandidateId{id});
    End(v1::STAGE_BUILD);
  }
  void Measure(int first, int count = 4) {
    for (int id = first; id < first + count; ++id) Profiled(CandidateId{id});
  }
  const Task& task() { return job().tasks[0]; }
};

TEST_F(PipelineTest, ProposesWhileTheDeviceMeasures) {
  Start(2);
  Build(1);
  ASSERT_TRUE(IsLive(v1::STAGE_PROFILE));
  ASSERT_TRUE(IsLive(v1::STAGE_PROPOSE)) << "the next round is proposed meanwhile";
  End(v1::STAGE_PROPOSE, Proposed{4, false});
  EXPECT_THAT(task().rounds, SizeIs(2));
  Build(5);
  EXPECT_FALSE(IsLive(v1::STAGE_PROPOSE)) << "a model that lacks two rounds is too old";
  const AttemptId first = Live(v1::STAGE_PROFILE).attempt;
  Measure(1);
  End(v1::STAGE_PROFILE);
  EXPECT_EQ(Live(v1::STAGE_UPDATE).before, CandidateId{5});
  EXPECT_NE(Live(v1::STAGE_PROFILE).attempt, first);
  const Decisions learned = End(v1::STAGE_UPDATE);
  ASSERT_EQ(Count<MarkLearned>(learned), 1);
  ASSERT_TRUE(IsLive(v1::STAGE_PROPOSE));
  End(v1::STAGE_PROPOSE, Proposed{4, false});
  Measure(5);
  End(v1::STAGE_PROFILE);
  EXPECT_FALSE(IsLive(v1::STAGE_UPDATE)) << "all is proposed: nobody would use what it learns";
  Build(9);
  Measure(9);
  End(v1::STAGE_PROFILE);
  EXPECT_EQ(task().trials, 12);
  EXPECT_TRUE(IsLive(v1::STAGE_COMPILE));
}

TEST_F(PipelineTest, DepthOneIsTheStrictOrder) {
  Start(1);
  Build(1);
  EXPECT_FALSE(IsLive(v1::STAGE_PROPOSE));
  Measure(1);
  EXPECT_TRUE(IsLive(v1::STAGE_UPDATE));
  EXPECT_FALSE(IsLive(v1::STAGE_PROPOSE));
  End(v1::STAGE_UPDATE);
  EXPECT_TRUE(IsLive(v1::STAGE_PROPOSE));
}

TEST_F(PipelineTest, WithoutAWishNoModelIsStale) {
  Start(0);
  Build(1);
  EXPECT_FALSE(IsLive(v1::STAGE_PROPOSE));
}

TEST_F(PipelineTest, OtherTasksComeFirst) {
  Start(2, 12, 2);
  Build(1);
  EXPECT_EQ(Live(v1::STAGE_PROPOSE).task, TaskIndex{1});
  End(v1::STAGE_PROPOSE, Proposed{4, false});
  Build(5);
  EXPECT_FALSE(IsLive(v1::STAGE_PROPOSE));
}

TEST_F(PipelineTest, UpdatesKeepTheOrderOfTheRounds) {
  Step(SlotsChanged{{CpuSlot("cpu0", {0}), DeviceSlot("p1", {1}), DeviceSlot("p2", {2})}, ""});
  Submit(1, 40, 4, 1, 3);
  Import(1);
  // On whatever device it is, everything but the first candidate.
  auto measure_the_others = [&] {
    for (bool more = true; more;) {
      more = false;
      for (const auto& [id, stage] : std::map(dispatcher_.live())) {
        if (stage.kind != v1::STAGE_PROFILE) continue;
        for (CandidateId candidate : stage.candidates) {
          if (candidate == CandidateId{1}) continue;
          Step(CandidateProfiled{id, candidate, v1::OUTCOME_OK, "", 1e6});
          more = true;
        }
        if (!stage.input_closed || !stage.candidates.empty()) continue;
        Step(StageFinished{id, {}, true, {}});
        more = true;
      }
    }
  };
  End(v1::STAGE_PROPOSE, Proposed{4, false});
  Build(1);
  measure_the_others();
  End(v1::STAGE_PROPOSE, Proposed{4, false});
  Build(5);
  measure_the_others();
  ASSERT_THAT(task().open, SizeIs(1));
  EXPECT_TRUE(IsLive(v1::STAGE_PROPOSE));
  EXPECT_FALSE(IsLive(v1::STAGE_UPDATE)) << "the oldest round is not measured";
  End(v1::STAGE_PROPOSE, Proposed{4, false});
  const auto measuring = std::get<Profiling>(task().open.begin()->second.where).attempt;
  Step(CandidateProfiled{measuring, CandidateId{1}, v1::OUTCOME_OK, "", 1e6});
  Build(9);
  EXPECT_EQ(Live(v1::STAGE_UPDATE).before, CandidateId{9}) << "both rounds at once";
}

TEST_F(PipelineTest, AProfileStageEndsWithTheRoundsItBeganWith) {
  Start(2, 16);
  Build(1);
  const StartStage profile = Live(v1::STAGE_PROFILE);
  EXPECT_EQ(profile.before, CandidateId{5});
  End(v1::STAGE_PROPOSE, Proposed{4, false});
  Built(CandidateId{5});
  EXPECT_TRUE(dispatcher_.live().at(profile.attempt).input_closed)
      << "though the next round is being built";
  EXPECT_THAT(dispatcher_.live().at(profile.attempt).candidates, SizeIs(4));
}

TEST_F(PipelineTest, AStopLetsAllRoundsBeMeasured) {
  TwoCores();
  JobParams params;
  params.target = kTarget;
  params.trials_per_task = 100;
  params.batch = 4;
  params.pipeline_depth = 2;
  params.time_limit = absl::Minutes(1);
  Step(JobSubmitted{JobId{1}, params});
  Import(1);
  End(v1::STAGE_PROPOSE, Proposed{4, false});
  Build(1);
  End(v1::STAGE_PROPOSE, Proposed{4, false});
  Wait(absl::Minutes(2));
  EXPECT_NE(job().stop, "");
  Build(5);
  Measure(1);
  End(v1::STAGE_PROFILE);
  EXPECT_FALSE(IsLive(v1::STAGE_UPDATE));
  EXPECT_FALSE(IsLive(v1::STAGE_COMPILE));
  Measure(5);
  End(v1::STAGE_PROFILE);
  EXPECT_EQ(task().trials, 8);
  EXPECT_TRUE(IsLive(v1::STAGE_COMPILE));
}

// Where updates are slower than measurements the device would wait for each of them.
TEST_F(PipelineTest, ProposesBeforeAnUpdateWhenNothingIsLeftToMeasure) {
  Start(2, 40);
  Build(1);
  End(v1::STAGE_PROPOSE, Proposed{4, false});
  Build(5);
  Measure(1);
  End(v1::STAGE_PROFILE);
  Measure(5);
  End(v1::STAGE_PROFILE);
  EXPECT_EQ(Live(v1::STAGE_UPDATE).before, CandidateId{5});
  End(v1::STAGE_UPDATE);
  ASSERT_TRUE(IsLive(v1::STAGE_PROPOSE)) << "by a model that lacks one round";
  End(v1::STAGE_PROPOSE, Proposed{4, false});
  Build(9);
  EXPECT_EQ(Live(v1::STAGE_UPDATE).before, CandidateId{9});
  EXPECT_TRUE(IsLive(v1::STAGE_PROFILE));
}

// An update that is given up makes the model older than the depth allows: nothing is proposed ahead
// before the next one.
TEST_F(PipelineTest, NothingIsProposedAheadOfAnUpdateThatWasGivenUp) {
  Start(2, 40);
  Build(1);
  End(v1::STAGE_PROPOSE, Proposed{4, false});
  Build(5);
  Measure(1);
  End(v1::STAGE_PROFILE);
  for (int i = 0; i < 3; ++i) {
    Break(v1::STAGE_UPDATE);
    Wait(absl::Seconds(30));
  }
  EXPECT_FALSE(IsLive(v1::STAGE_UPDATE));
  EXPECT_FALSE(IsLive(v1::STAGE_PROPOSE));
  Measure(5);
  End(v1::STAGE_PROFILE);
  EXPECT_EQ(Live(v1::STAGE_UPDATE).before, CandidateId{9});
}

// What a store remembers of rounds in flight.
TEST_F(PipelineTest, RoundsAreFoundAgain) {
  std::vector<std::pair<CandidateId, bool>> candidates;
  for (int id = 3; id < 13; ++id) candidates.emplace_back(CandidateId{id}, id % 3 == 0);
  EXPECT_THAT(MakeRounds({}, 4, true), IsEmpty());
  const auto one = MakeRounds(candidates, 4, false);
  ASSERT_THAT(one, SizeIs(1));
  EXPECT_EQ(one[0].size, 10);
  EXPECT_EQ(one[0].open, 4);
  const auto several = MakeRounds(candidates, 4, true);
  ASSERT_THAT(several, SizeIs(3));
  EXPECT_EQ(several[0].first, CandidateId{3});
  EXPECT_EQ(several[0].end, CandidateId{7});
  EXPECT_EQ(several[1].open, 1);
  EXPECT_EQ(several[2].size, 2);
}

}  // namespace
}  // namespace heddle::scheduler
