// Models that are fitted to samples from outside memory.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <random>

#include "cost_model/model/model.h"
#include "cost_model/transfer/transfer.h"

namespace heddle::cost_model {
namespace {

// Samples of `groups` tasks, as many blocks as there are.
class Made final : public SampleSource {
 public:
  Made(int groups, int each, int per_block) : groups_(groups), each_(each), per_block_(per_block) {}

  absl::Status Rewind() override {
    next_ = 0;
    ++passes;
    return absl::OkStatus();
  }
  absl::Status Next(std::vector<Sample>* block) override {
    block->clear();
    if (next_ == fails_at) return absl::DataLossError("the disk is broken");
    for (int i = 0; i < per_block_ && next_ < groups_; ++i, ++next_) {
      const std::vector<Sample> group = Group(next_);
      block->insert(block->end(), group.begin(), group.end());
    }
    return absl::OkStatus();
  }
  // Scores are comparable within a group only: each has its own offset.
  std::vector<Sample> Group(int number) const {
    std::mt19937_64 rng(static_cast<uint64_t>(number));
    std::vector<Sample> samples(static_cast<size_t>(each_));
    const double offset = static_cast<double>(rng() % 10);
    for (Sample& s : samples) {
      for (int i = 0; i < 20; ++i) s.features.push_back(static_cast<float>(rng() % 20));
      const std::vector<float>& x = s.features;
      const double cost = 0.2 * x[0] + std::abs(x[1] - 7) + (x[2] > 10 ? 0.5 * x[3] : 0);
      s.score = static_cast<float>(1 / (1 + cost + offset));
      s.group = number;
    }
    return samples;
  }
  int passes = 0;
  int fails_at = -1;

 private:
  const int groups_, each_, per_block_;
  int next_ = 0;
};

class SourceModelTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  // Pairs of unseen groups in order.
  static double Accuracy(const Model& model) {
    const Made made(1, 200, 1);
    double sum = 0;
    for (int group = 1000; group < 1005; ++group) {
      const std::vector<Sample> samples = made.Group(group);
      std::vector<std::vector<float>> features;
      for (const Sample& s : samples) features.push_back(s.features);
      const auto found = model.Predict(features);
      EXPECT_TRUE(found.ok()) << found.status();
      std::vector<float> thought;
      for (const Estimate& e : *found) thought.push_back(e.score);
      sum += PairsInOrder(samples, thought) / 5;
    }
    return sum;
  }

  const std::string folder_ = ::testing::TempDir() + "/source_model";
};

TEST_F(SourceModelTest, RanksAsWellAsAModelFittedInMemory) {
  Made source(40, 50, 3);
  const auto streamed = FitToSource({}, 1, &source, folder_);
  ASSERT_TRUE(streamed.ok()) << streamed.status();
  EXPECT_TRUE((*streamed)->trained());
  std::vector<Sample> all;
  for (int group = 0; group < 40; ++group) {
    const std::vector<Sample> samples = source.Group(group);
    all.insert(all.end(), samples.begin(), samples.end());
  }
  const auto whole = MakeModel({}, 1);
  ASSERT_TRUE(whole->Fit(all).ok());
  const double here = Accuracy(**streamed), there = Accuracy(*whole);
  std::printf("pairs in order: %.3f from blocks, %.3f in memory\n", here, there);
  EXPECT_GE(here, 0.85);
  EXPECT_NEAR(here, there, 0.03);
  EXPECT_TRUE(std::filesystem::is_empty(folder_)) << "its files are gone";
}

TEST_F(SourceModelTest, RepeatsExactly) {
  std::string first;
  for (int i = 0; i < 2; ++i) {
    Made source(12, 40, 5);
    const auto model = FitToSource({}, 7, &source, folder_);
    ASSERT_TRUE(model.ok()) << model.status();
    if (i == 0) first = (*model)->Serialize();
    EXPECT_EQ((*model)->Serialize(), first);
    const auto parsed = ParseModel(first, {}, 7);
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(Accuracy(**parsed), Accuracy(**model));
  }
}

TEST_F(SourceModelTest, ContinuesFromAModel) {
  Made few(3, 40, 1), more(40, 50, 3);
  const auto before = FitToSource({}, 1, &few, folder_);
  ASSERT_TRUE(before.ok()) << before.status();
  const auto after = FitToSource({}, 1, &more, folder_, before->get());
  ASSERT_TRUE(after.ok()) << after.status();
  EXPECT_GT((*after)->Serialize().size(), (*before)->Serialize().size());
  EXPECT_GT(Accuracy(**after), Accuracy(**before));
}

TEST_F(SourceModelTest, ErrorsOfTheSourceAreTold) {
  Made broken(12, 40, 5);
  broken.fails_at = 5;
  EXPECT_EQ(FitToSource({}, 1, &broken, folder_).status().message(), "the disk is broken");
  Made none(0, 40, 5);
  EXPECT_TRUE(absl::IsInvalidArgument(FitToSource({}, 1, &none, folder_).status()));
  Made some(2, 40, 5);
  EXPECT_TRUE(absl::IsInvalidArgument(
      FitToSource({.objective = Objective::kRegression}, 1, &some, folder_).status()));
  EXPECT_TRUE(absl::IsInternal(FitToSource({}, 1, &some, folder_ + "/absent").status()));
}

}  // namespace
}  // namespace heddle::cost_model
