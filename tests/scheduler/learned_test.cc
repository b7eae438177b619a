// What searches predicted, learned and taught, in both record stores.
#include "tests/scheduler/record_store_fixture.h"

namespace heddle::scheduler {
namespace {

using ::testing::ElementsAre;
using ::testing::SizeIs;

class LearnedTest : public RecordStoreTest {};

TEST_P(LearnedTest, PredictionsComeWithTheRecords) {
  AddJob(1, 1, 1);
  CandidateRow predicted = MakeCandidate(1, 7, 0, "annealing");
  predicted.prediction.emplace().set_score(-0.25);
  predicted.prediction->set_samples(32);
  ASSERT_TRUE(
      Apply({InsertCandidate{predicted}, MakeRecord(1, 1, 0, 100), MakeRecord(1, 7, 0, 90)}).ok());
  const std::vector<v1::Record> records = Query({});
  ASSERT_THAT(records, SizeIs(2));
  EXPECT_EQ(records[0].origin(), "annealing");
  EXPECT_EQ(records[0].prediction().score(), -0.25);
  EXPECT_EQ(records[0].prediction().samples(), 32);
  EXPECT_EQ(records[1].origin(), "default");
  EXPECT_FALSE(records[1].has_prediction());
}

TEST_P(LearnedTest, KeepsWhatSearchesLearned) {
  AddJob(1, 3, 0);
  const auto learned = [](int task, const std::string& target, const std::string& samples,
                          int32_t at, int32_t version = 1) {
    PutLearned put{1, task, {}, {Key(task), target, "dev"}, {}, at};
    put.report.set_samples(at);
    put.experience.set_samples(samples);
    put.experience.set_measured(at);
    put.experience.set_version(version);
    return put;
  };
  const auto others = [&](int task, int64_t limit) {
    std::vector<std::string> samples;
    const auto found = store_->OthersExperience({Key(task), "t", "dev"}, limit);
    for (const Experience& other : found.value()) {
      EXPECT_EQ(other.workload.key, Key(other.learned.samples() == "one" ? 1 : 2));
      samples.push_back(other.learned.samples());
    }
    return samples;
  };
  EXPECT_FALSE(store_->Report(1, 0)->has_value());
  EXPECT_THAT(others(0, 9), SizeIs(0));
  ASSERT_TRUE(Apply({learned(0, "t", "zero", 1), learned(1, "t", "one", 3),
                     learned(2, "t", "two", 2), learned(2, "other target", "x", 9)})
                  .ok());
  EXPECT_THAT(others(0, 9), ElementsAre("one", "two")) << "the latest first, none of its own";
  EXPECT_THAT(others(0, 1), ElementsAre("one"));
  EXPECT_EQ((*store_->Report(1, 1))->samples(), 3);
  ASSERT_TRUE(Apply({learned(2, "t", "more of two", 5), learned(1, "t", "", 7)}).ok());
  EXPECT_THAT(others(0, 9), ElementsAre("more of two", "one")) << "nothing new of one";
  EXPECT_EQ((*store_->Report(1, 1))->samples(), 7);
  PutLearned shorter = learned(2, "t", "less of two", 4);
  shorter.made_unix_ns = 9;
  ASSERT_TRUE(Apply({shorter}).ok());
  EXPECT_THAT(others(0, 9), ElementsAre("more of two", "one")) << "a short search knows less";
  EXPECT_EQ(store_->OthersExperience({Key(0), "t", "dev"}, 9)->front().learned.measured(), 5);
  ASSERT_TRUE(Apply({learned(2, "t", "another form of two", 4, 2)}).ok());
  EXPECT_THAT(others(0, 9), ElementsAre("another form of two", "one")) << "the old one is no use";
  ASSERT_TRUE(Apply({PutTask{MakeTask(1, 1)}}).ok());
  EXPECT_EQ((*store_->Report(1, 1))->samples(), 7) << "a task that changes keeps its report";
  EXPECT_FALSE(store_->Report(1, 8)->has_value());
}

TEST_P(LearnedTest, TellsWhatIsNearerFirst) {
  AddJob(1, 3, 0);
  const auto learned = [](int task, const std::string& target, const std::string& device,
                          const std::string& samples, int64_t at) {
    PutLearned put{1, task, {}, {Key(task), target, device}, {}, at};
    put.experience.set_samples(samples);
    return put;
  };
  ASSERT_TRUE(
      Apply({learned(2, "t", "dev", "same", 1), learned(1, "t -threads=2", "dev", "two", 5),
             learned(0, "t -threads=2", "dev", "itself with two", 4),
             learned(1, "t", "dev2", "another device", 9),
             learned(1, "u", "dev", "another kind", 10),
             learned(1, "tt", "dev", "another kind", 10), learned(0, "t", "dev", "itself", 11)})
          .ok());
  const auto others = [&](int64_t limit) {
    std::vector<std::string> samples;
    const auto found = store_->OthersExperience({Key(0), "t", "dev"}, limit);
    for (const Experience& other : found.value()) samples.push_back(other.learned.samples());
    return samples;
  };
  EXPECT_THAT(others(9), ElementsAre("same", "two", "itself with two", "another device"));
  EXPECT_THAT(others(2), ElementsAre("same", "two"));
}

INSTANTIATE_TEST_SUITE_P(All, LearnedTest, kStores, StoreName);

}  // namespace
}  // namespace heddle::scheduler
