// A worker's work is what its order says.
#include "scheduler/sim/world/stage_work.h"

#include <gtest/gtest.h>

namespace heddle::sim {
namespace {

TEST(SearchStateTest, IsTheSameAfterText) {
  const SearchState state{3, 2, 18446744073709551615u};
  const SearchState again = SearchState::Parse(state.ToText());
  EXPECT_EQ(again.next, 3);
  EXPECT_EQ(again.learned, 2);
  EXPECT_EQ(again.hash, state.hash);
  for (const char* text : {"", "1 2", "1 x 3"}) EXPECT_EQ(SearchState::Parse(text).next, 0) << text;
}

TEST(StageWorkTest, ATraceTellsItsOrdinal) {
  const SearchState state{40, 32, 7};
  EXPECT_EQ(TraceOf(TaskIndex{2}, state, 3), "t2.43.7");
  EXPECT_EQ(OrdinalOf(TraceOf(TaskIndex{2}, state, 3)), 43);
  EXPECT_EQ(OrdinalOf("a trace of somebody else"), 0);
}

TEST(StageWorkTest, InputsComeFromTheOrder) {
  StageOrder order;
  v1::Candidate& build = *order.inputs.emplace_back().mutable_build()->mutable_candidate();
  build.set_id(5);
  build.set_trace("t0.4.9");
  v1::Candidate& profile = *order.inputs.emplace_back().mutable_profile()->mutable_candidate();
  profile.set_id(6);
  profile.set_trace("t0.5.9");
  const StageWork work = WorkOf(order);
  ASSERT_EQ(work.inputs.size(), 2u);
  EXPECT_EQ(work.inputs[0].id, CandidateId{5});
  EXPECT_EQ(work.inputs[0].ordinal, 4);
  EXPECT_EQ(work.inputs[1].id, CandidateId{6});
  EXPECT_EQ(work.inputs[1].trace, "t0.5.9");
}

TEST(StageWorkTest, OnlyASearchThatBeginsTakesInWhatOthersTaught) {
  StageOrder order;
  v1::SearchSpec& search = *order.start.mutable_update()->mutable_search();
  order.start.mutable_update()->add_results()->set_trace("t0.0.0");
  StageWork alone, taught, going_on;
  AddFetched(order, &alone);
  EXPECT_EQ(alone.search.hash, 0u);
  EXPECT_EQ(alone.results.size(), 1u);
  search.add_others()->set_samples("s");
  AddFetched(order, &taught);
  EXPECT_NE(taught.search.hash, 0u);
  order.search_state = "4 3 2";
  AddFetched(order, &going_on);
  EXPECT_EQ(going_on.search.hash, 2u);
}

TEST(ProposedCountsTest, OrdinalsGoOnOverRoundsOfATask) {
  ProposedCounts counts;
  counts.Added({JobId{1}, TaskIndex{0}, CandidateId{1}, 2});
  counts.Added({JobId{1}, TaskIndex{1}, CandidateId{3}, 1});
  counts.Added({JobId{1}, TaskIndex{0}, CandidateId{4}, 2});
  EXPECT_EQ(counts.WorkOf(JobId{1}, CandidateId{3}).ordinal, 0);
  EXPECT_EQ(counts.WorkOf(JobId{1}, CandidateId{5}).ordinal, 3);
  StartStage propose;
  propose.job = JobId{1};
  propose.kind = v1::STAGE_PROPOSE;
  propose.task = TaskIndex{0};
  propose.count = 8;
  EXPECT_EQ(counts.WorkOf(propose).search.next, 4);
  EXPECT_EQ(counts.WorkOf(propose).count, 8);
}

}  // namespace
}  // namespace heddle::sim
