// Transfer models that are fitted to pages of transfer samples.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "cost_model/features/features.h"
#include "cost_model/search/methods.h"
#include "cost_model/transfer/transfer.h"
#include "cost_model/transfer/transfer_samples.h"
#include "tests/cost_model/matmul_space.h"

namespace heddle::cost_model {
namespace {

using testing::MatmulTask;

// Samples of one made-up task. Scores are comparable within a task only: each has its own offset.
std::vector<Sample> TaskOf(int number, int count) {
  std::mt19937_64 rng(static_cast<uint64_t>(number));
  std::vector<Sample> samples(static_cast<size_t>(count));
  const double offset = static_cast<double>(rng() % 10);
  for (Sample& s : samples) {
    s.features.resize(FeatureTable().size());
    for (int i = 0; i < 20; ++i)
      s.features[static_cast<size_t>(i)] = static_cast<float>(rng() % 20);
    const std::vector<float>& x = s.features;
    const double cost = 0.2 * x[0] + std::abs(x[1] - 7) + (x[2] > 10 ? 0.5 * x[3] : 0);
    s.score = std::round(static_cast<float>(2 * kScoreLevels / (2 + cost + offset))) / kScoreLevels;
    s.group = number + 1;
  }
  return samples;
}

// Made-up tasks, made anew whenever they are read.
class Made final : public SamplePages {
 public:
  Made(int tasks, int per_page, int each = 40) : tasks_(tasks), per_page_(per_page), each_(each) {}

  absl::Status Rewind() override {
    next_ = 0;
    return absl::OkStatus();
  }
  absl::StatusOr<std::vector<RelatedSamples>> Next() override {
    if (fails_at >= 0 && next_ >= fails_at) return absl::DataLossError("the disk is broken");
    std::vector<RelatedSamples> page;
    for (int i = 0; i < per_page_ && next_ < tasks_; ++i, ++next_) {
      RelatedSamples& task = page.emplace_back();
      task.samples = PackTransferSamples(TaskOf(next_, each_));
      if (next_ >= damaged_from && next_ < damaged_to) task.samples.resize(task.samples.size() / 2);
    }
    return page;
  }
  int fails_at = -1;
  int damaged_from = 0, damaged_to = 0;  // these tasks are damaged

 private:
  const int tasks_, per_page_, each_;
  int next_ = 0;
};

class SamplePagesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  absl::StatusOr<std::unique_ptr<Transfer>> Fit(Made pages) const {
    auto transfer = std::make_unique<Transfer>(spec_, 1);
    PagedSamples samples(&pages, columns_);
    HEDDLE_RETURN_IF_ERROR(transfer->Learn(&samples, folder_));
    return transfer;
  }
  static std::string Bytes(const Transfer& transfer) {
    BlobWriter w;
    transfer.Save(w);
    return std::move(w).Take();
  }
  // Pairs of unseen tasks in order.
  double Accuracy(const Transfer& transfer) const {
    double sum = 0;
    for (int number = 1000; number < 1005; ++number) {
      const std::vector<Sample> samples = TaskOf(number, 100);
      std::vector<std::vector<float>> seen;
      for (const Sample& s : samples) seen.push_back(Pick(s.features, columns_));
      const auto thought = transfer.Predict(seen);
      EXPECT_TRUE(thought.ok()) << thought.status();
      sum += PairsInOrder(samples, *thought) / 5;
    }
    return sum;
  }

  const ModelSpec spec_ = FindMethod("annealing")->others;
  const std::vector<size_t> columns_ = *ColumnsWithout(FindMethod("annealing")->without);
  const std::string folder_ = ::testing::TempDir() + "/sample_pages";
};

TEST_F(SamplePagesTest, PagesOfAnySizeRankAsSamplesInMemoryDo) {
  std::vector<Sample> all;
  for (int number = 0; number < 40; ++number) {
    for (Sample& s : TaskOf(number, 40)) {
      all.push_back(std::move(s));
      all.back().features = Pick(all.back().features, columns_);
    }
  }
  Transfer whole(spec_, 1);
  ASSERT_TRUE(whole.Learn(all).ok());
  const double in_memory = Accuracy(whole);
  EXPECT_GE(in_memory, 0.9);
  for (const int per_page : {1, 7, 40}) {
    const auto paged = Fit(Made(40, per_page));
    ASSERT_TRUE(paged.ok()) << paged.status();
    EXPECT_EQ((*paged)->tasks(), whole.tasks());
    EXPECT_EQ((*paged)->samples(), whole.samples());
    const double accuracy = Accuracy(**paged);
    std::printf("pages of %d tasks: %.3f of pairs in order, in memory %.3f\n", per_page, accuracy,
                in_memory);
    EXPECT_NEAR(accuracy, in_memory, 0.02);
  }
  EXPECT_EQ(Bytes(**Fit(Made(40, 7))), Bytes(**Fit(Made(40, 7)))) << "it repeats exactly";
  EXPECT_TRUE(std::filesystem::is_empty(folder_)) << "its files are gone";
}

// What a sample of the tasks misses.
TEST_F(SamplePagesTest, MoreTasksRankBetter) {
  const auto few = Fit(Made(4, 4)), many = Fit(Made(128, 16));
  ASSERT_TRUE(few.ok() && many.ok());
  EXPECT_GT(Accuracy(**many), Accuracy(**few) + 0.01);
}

TEST_F(SamplePagesTest, DamagedTasksAreSkipped) {
  Made damaged(40, 4);
  damaged.damaged_from = 2, damaged.damaged_to = 13;  // two whole pages, and parts of two
  const auto fitted = Fit(damaged);
  ASSERT_TRUE(fitted.ok()) << fitted.status();
  EXPECT_EQ((*fitted)->tasks(), 29);
  EXPECT_EQ((*fitted)->samples(), 29 * 40);
  Made all(8, 4);
  all.damaged_to = 8;
  EXPECT_TRUE(absl::IsInvalidArgument(Fit(all).status())) << Fit(all).status();
  Made broken(40, 4);
  broken.fails_at = 20;
  EXPECT_EQ(Fit(broken).status().message(), "the disk is broken");
}

// Peak resident memory of this process, in MiB, since the last call with `forget`.
double PeakMib(bool forget) {
  if (forget) std::ofstream("/proc/self/clear_refs") << "5";
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmHWM:")) return std::stod(line.substr(6)) / 1024;
  }
  return 0;
}

TEST_F(SamplePagesTest, MemoryDoesNotGrowWithTheFeatures) {
  constexpr int kFew = 64, kMany = 384, kEach = 128;
  ModelSpec spec = spec_;
  spec.rounds = 4;
  const auto peak_of = [&](int tasks) {
    Transfer transfer(spec, 1);
    Made pages(tasks, 8, kEach);
    PagedSamples samples(&pages, columns_);
    const double before = PeakMib(/*forget=*/true);
    EXPECT_TRUE(transfer.Learn(&samples, folder_).ok());
    EXPECT_EQ(transfer.samples(), tasks * kEach);
    return PeakMib(/*forget=*/false) - before;
  };
  (void)peak_of(kFew);  // what XGBoost and the allocator keep for ever
  const double few = peak_of(kFew), many = peak_of(kMany);
  const double features =
      1.0 * (kMany - kFew) * kEach * 4 * static_cast<double>(columns_.size()) / (1 << 20);
  std::printf("%.1f MiB more of features: memory grows by %.1f MiB, not %.1f MiB\n", features, many,
              few);
  EXPECT_LT(many - few, features / 4);
}

TEST_F(SamplePagesTest, ASearchLearnsFromThemAndHandsTheModelOn) {
  const auto begin = [](std::string_view method) {
    return MakeModelSearch(MatmulTask({}), *FindMethod(method), 2);
  };
  Made pages(40, 7);
  const auto search = begin("annealing");
  ASSERT_TRUE(search->LearnFrom(&pages, folder_).ok());
  EXPECT_EQ(search->Report().other_tasks, 40);
  EXPECT_EQ(search->Report().other_samples, 1600);
  const auto next = begin("annealing");
  ASSERT_TRUE(next->BeginWith(search->TransferModel()).ok());
  EXPECT_LT(search->TransferModel().size(), 512u << 10);
  const auto first = search->Propose(8), second = next->Propose(8);
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_TRUE(first->at(1).prediction.has_value());
  for (size_t i = 0; i < first->size(); ++i) EXPECT_EQ(first->at(i).trace, second->at(i).trace);

  const auto other = begin("regression");
  EXPECT_TRUE(absl::IsUnimplemented(other->LearnFrom(&pages, folder_)));
  const auto unchanged = begin("annealing");
  const std::string before = unchanged->Save();
  Made none(0, 4);
  EXPECT_TRUE(absl::IsInvalidArgument(unchanged->LearnFrom(&none, folder_)));
  EXPECT_EQ(unchanged->Save(), before);
  EXPECT_EQ(unchanged->TransferModel(), "");
}

}  // namespace
}  // namespace heddle::cost_model
