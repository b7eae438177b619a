// No round is proposed by a search that has not learned the results there are.
#include "tests/scheduler/core/dispatcher_fixture.h"

namespace heddle::scheduler {
namespace {

class LearningTest : public DispatcherTest {
 protected:
  void Start(int depth) {
    TwoCores();
    JobParams params;
    params.target = params.record_target = kTarget;
    params.trials_per_task = params.batch = 4;
    params.pipeline_depth = depth;
    Step(JobSubmitted{JobId{1}, params});
    End(v1::STAGE_IMPORT, ImportOf({{"a"}, {"b"}}, "key"));
  }
};

// All trials are granted when the first task's round ends, so it learns nothing; then the second
// task's search finds less than it was granted, and the rest is the first one's.
TEST_F(LearningTest, TrialsThatComeBackAreProposedByWhatWasMeasured) {
  Start(2);
  End(v1::STAGE_PROPOSE, Proposed{4, false});
  Round();
  EXPECT_FALSE(IsLive(v1::STAGE_UPDATE));
  EXPECT_EQ(job().tasks[0].trials, 4);
  ASSERT_EQ(Live(v1::STAGE_PROPOSE).task, TaskIndex{1});
  End(v1::STAGE_PROPOSE, Proposed{2, true});
  Round();
  ASSERT_TRUE(IsLive(v1::STAGE_UPDATE));
  EXPECT_EQ(Live(v1::STAGE_UPDATE).task, TaskIndex{0});
  EXPECT_FALSE(IsLive(v1::STAGE_PROPOSE));
  End(v1::STAGE_UPDATE);
  EXPECT_EQ(Live(v1::STAGE_PROPOSE).task, TaskIndex{0});
  EXPECT_EQ(Live(v1::STAGE_PROPOSE).count, 2);
}

// The next update learns what is on record.
TEST_F(RoundsTest, ASkippedUpdateStillHasToLearnWhatIsOnRecord) {
  TwoCores();
  Start(1, Params(16, 4), {{"a", 1, {3, 3, 900, 1000}}});
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(IsLive(v1::STAGE_UPDATE)) << i;
    Break(v1::STAGE_UPDATE);
    Wait(absl::Seconds(30));
  }
  EXPECT_TRUE(IsLive(v1::STAGE_PROPOSE));
  EXPECT_TRUE(job().tasks[0].unlearned.known);
}

}  // namespace
}  // namespace heddle::scheduler
