#include "scheduler/core/duration_model.h"

#include <gtest/gtest.h>

namespace heddle::scheduler {
namespace {

constexpr auto kBuild = v1::STAGE_BUILD;

DurationModel::Where At(int64_t job, uint64_t task, uint32_t worker_class = 0) {
  return {JobId{job}, task, kBuild, worker_class};
}

TEST(DurationModelTest, FallsBackFromTaskToJobToStageToPrior) {
  DurationModel model;
  EXPECT_EQ(model.Predict(At(1, 11)), DurationModel::Prior(kBuild));
  model.Observe(At(1, 11, 5), absl::Seconds(3));
  EXPECT_EQ(model.Predict(At(1, 11, 5)), absl::Seconds(3));
  EXPECT_EQ(model.Predict(At(1, 11, 7)), absl::Seconds(3)) << "another class: the same task";
  EXPECT_EQ(model.Predict(At(1, 13)), absl::Seconds(3)) << "another task of the job";
  EXPECT_EQ(model.Predict(At(2, 17)), absl::Seconds(3)) << "another job";
  model.Observe(At(2, 17), absl::Seconds(8));
  EXPECT_EQ(model.Predict(At(2, 19)), absl::Seconds(8)) << "the job's own is closer";
  EXPECT_EQ(model.Predict(At(1, 11)), absl::Seconds(3));
  EXPECT_EQ(model.Predict({JobId{1}, 11, v1::STAGE_UPDATE, 0}),
            DurationModel::Prior(v1::STAGE_UPDATE));
}

TEST(DurationModelTest, TheSameTaskOfAnotherJobIsKnown) {
  DurationModel model;
  const uint64_t task = DurationModel::TaskId("00000000000000ff");
  model.Observe(At(1, task), absl::Seconds(3));
  model.Observe(At(2, 17), absl::Seconds(8));
  EXPECT_EQ(model.Predict(At(2, task)), absl::Seconds(3));
}

TEST(DurationModelTest, ClassesOfWorkersAreApart) {
  DurationModel model;
  for (int i = 0; i < 3; ++i) {
    model.Observe(At(1, 11, 5), absl::Seconds(2));
    model.Observe(At(1, 11, 7), absl::Seconds(20));
  }
  EXPECT_EQ(model.Predict(At(1, 11, 5)), absl::Seconds(2));
  EXPECT_EQ(model.Predict(At(1, 11, 7)), absl::Seconds(20));
}

// As long as outliers are fewer than half of the window, the prediction stays among the others.
TEST(DurationModelTest, OutliersDoNotMoveIt) {
  DurationModel model;
  for (int i = 0; i < 200; ++i) {
    const bool outlier = i % 9 < 4;
    model.Observe(At(1, 11), outlier ? absl::Hours(i % 2 == 0 ? 10 : 0) + absl::Milliseconds(1)
                                     : absl::Seconds(4 + i % 3));
    if (i < 9) continue;
    EXPECT_GE(model.Predict(At(1, 11)), absl::Seconds(4)) << i;
    EXPECT_LE(model.Predict(At(1, 11)), absl::Seconds(6)) << i;
  }
}

TEST(DurationModelTest, WhatLastsChangesIt) {
  DurationModel model;
  for (int i = 0; i < 50; ++i) model.Observe(At(1, 11), absl::Seconds(4));
  for (int i = 0; i < DurationModel::kWindow / 2 + 1; ++i)
    model.Observe(At(1, 11), absl::Seconds(9));
  EXPECT_EQ(model.Predict(At(1, 11)), absl::Seconds(9));
}

TEST(DurationModelTest, NonsenseIsLeftOutAndMemoryIsBounded) {
  DurationModel model;
  model.Observe(At(1, 11), absl::ZeroDuration());
  model.Observe(At(1, 11), -absl::Seconds(1));
  model.Observe(At(1, 11), absl::InfiniteDuration());
  EXPECT_EQ(model.cells(), 0u);
  for (int64_t i = 1; i < 400'000; ++i)
    model.Observe(At(i, static_cast<uint64_t>(2 * i + 1)), absl::Seconds(1));
  EXPECT_LE(model.cells(), 2 * DurationModel::kMaxCells + 2);
}

}  // namespace
}  // namespace heddle::scheduler
