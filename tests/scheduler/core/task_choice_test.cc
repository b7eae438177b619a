// The choice of the next task against an oracle: tasks whose tuning curves are known.
#include "scheduler/core/task_choice.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <random>

namespace heddle::scheduler {
namespace {

// A task as a tuner sees it: trial k of its search gives times[k].
struct Oracle {
  double weight = 1, flops = 0, device_ns = 1e8;
  std::vector<double> times;
  std::vector<CurvePoint> curve;
  int trials = 0;

  void Measure(int count) {
    for (int i = 0; i < count; ++i) {
      const double time = times[static_cast<size_t>(trials++)];
      if (curve.empty() || time < curve.back().best_ns) curve.push_back({trials, time});
    }
  }
  double Best() const { return curve.back().best_ns; }
  ChoiceTask AsChoice() const { return {true, weight, flops, trials, curve, device_ns}; }
};

constexpr int kTrials = 64, kBatch = 16, kTasks = 12;

// Times fall from a start to an end of the task's own, fast or slowly, with chance in each trial.
std::vector<Oracle> MakeTasks(uint64_t seed, bool alike) {
  std::mt19937_64 random(seed);
  auto uniform = [&](double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(random);
  };
  std::vector<Oracle> tasks(kTasks);
  for (Oracle& task : tasks) {
    task.flops = alike ? 1e8 : std::exp(uniform(std::log(1e7), std::log(1e9)));
    task.weight = alike ? 1 : std::floor(uniform(1, 8));
    const double end = task.flops / (alike ? 50 : uniform(20, 80));  // ns at so many GFLOP/s
    const double start = end * (alike ? 4 : uniform(1.2, 8));
    const double speed = alike ? 60 : std::exp(uniform(std::log(8), std::log(400)));
    for (int k = 0; k < kTasks * kTrials; ++k) {
      const double typical = end + (start - end) * std::exp(-k / speed);
      task.times.push_back(typical * uniform(1, 1.5));
    }
  }
  return tasks;
}

double Latency(const std::vector<Oracle>& tasks) {
  double sum = 0;
  for (const Oracle& task : tasks) sum += task.weight * task.Best();
  return sum;
}

double Uniform(std::vector<Oracle> tasks) {
  for (Oracle& task : tasks) task.Measure(kTrials);
  return Latency(tasks);
}

double Gradient(std::vector<Oracle> tasks, std::vector<int>* trials = nullptr) {
  const GradientBudget budget = MakeGradientBudget(kTrials, kBatch, std::vector<int>(kTasks, 0));
  for (int given = 0; given < budget.total; given += kBatch) {
    std::vector<ChoiceTask> choices;
    for (const Oracle& task : tasks) choices.push_back(task.AsChoice());
    for (ChoiceTask& choice : choices) choice.eligible = choice.trials < GradientCap(kTrials);
    const auto chosen = ChooseTask(choices, {kBatch, budget.floor, given / kBatch});
    tasks[*chosen].Measure(kBatch);
  }
  if (trials != nullptr) {
    for (const Oracle& task : tasks) trials->push_back(task.trials);
  }
  return Latency(tasks);
}

TEST(TaskChoiceTest, GradientBeatsUniformByFifteenPercent) {
  double sum = 0, worst = 0;
  constexpr int kSeeds = 200;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    const std::vector<Oracle> tasks = MakeTasks(seed, false);
    const double ratio = Gradient(tasks) / Uniform(tasks);
    sum += std::log(ratio);
    worst = std::max(worst, ratio);
  }
  const double mean = std::exp(sum / kSeeds);
  std::printf("final latency, gradient over uniform: mean %.3f, worst %.3f\n", mean, worst);
  EXPECT_LT(mean, 0.85);
  EXPECT_LT(worst, 1.02);
}

TEST(TaskChoiceTest, AmongEqualTasksItLosesNothing) {
  double sum = 0;
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    const std::vector<Oracle> tasks = MakeTasks(seed, true);
    sum += std::log(Gradient(tasks) / Uniform(tasks));
  }
  const double mean = std::exp(sum / 50);
  std::printf("equal tasks: mean %.3f\n", mean);
  EXPECT_LT(mean, 1.02);
}

TEST(TaskChoiceTest, EveryTaskGetsTheFloorAndNoneExceedsTheCap) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    std::vector<int> trials;
    std::vector<Oracle> tasks = MakeTasks(seed, false);
    tasks[3].weight = 1e9;  // nothing else counts
    Gradient(tasks, &trials);
    for (int count : trials) {
      EXPECT_GE(count, kBatch);
      EXPECT_LE(count, 8 * kTrials);
    }
    EXPECT_GT(trials[3], 4 * kTrials);
  }
}

TEST(TaskChoiceTest, GainPerSecondOfTheDeviceDecides) {
  const std::vector<CurvePoint> curve = {{1, 1000}, {20, 500}};
  ChoiceTask cheap{true, 1, 0, 32, curve, 1e8};
  ChoiceTask dear{true, 3, 0, 32, curve, 1e9};
  EXPECT_EQ(ChooseTask({dear, cheap}, {16, 16, 0}), 1u);
  dear.weight = 30;
  EXPECT_EQ(ChooseTask({dear, cheap}, {16, 16, 0}), 0u);
  dear.eligible = false;
  EXPECT_EQ(ChooseTask({dear, cheap}, {16, 16, 0}), 1u);
  cheap.eligible = false;
  EXPECT_EQ(ChooseTask({dear, cheap}, {16, 16, 0}), std::nullopt);
}

TEST(TaskChoiceTest, ATaskFarFromItsLikesIsHopedFor) {
  // Both stand still; one runs at half the FLOP/s of its like.
  const std::vector<CurvePoint> fast = {{1, 1e6}}, slow = {{1, 2e6}};
  const ChoiceTask a{true, 2, 1e8, 200, fast, 1e8}, b{true, 1, 1e8, 200, slow, 1e8};
  EXPECT_EQ(ChooseTask({a, b}, {16, 16, 0}), 1u) << "the weighted times are the same";
}

TEST(TaskChoiceTest, BelowTheFloorTheLargestPartOfTheModelComesFirst) {
  const std::vector<CurvePoint> ms3 = {{1, 3e6}}, us50 = {{1, 5e4}}, us80 = {{1, 8e4}};
  // The second has no trial yet, but is estimated by the rate of those with about as many FLOP: 0.1 ms, twice.
  std::vector<ChoiceTask> tasks = {{true, 1, 1e8, 1, us50},
                                   {true, 2, 2e8, 0, {}},
                                   {true, 1, 6e9, 1, ms3},
                                   {true, 4, 0, 0, {}},
                                   {true, 1, 1e8, 1, us80}};
  std::vector<size_t> order;
  for (size_t i = 0; i < tasks.size(); ++i) {
    const std::optional<size_t> chosen = ChooseTask(tasks, {16, 16, static_cast<int64_t>(i)});
    ASSERT_TRUE(chosen.has_value());
    order.push_back(*chosen);
    tasks[*chosen].trials += 16;
  }
  EXPECT_EQ(order, (std::vector<size_t>{2, 1, 4, 0, 3}));
}

TEST(TaskChoiceTest, ALargeJobDoesNotRaiseTheFloorWithoutEnd) {
  EXPECT_EQ(MakeGradientBudget(2000, 16, {0}).floor, 16);
  EXPECT_EQ(MakeGradientBudget(2000, 64, {0}).floor, 64);
  EXPECT_EQ(MakeGradientBudget(64, 1, {0}).floor, 8);
}

TEST(TaskChoiceTest, PlateausAreSeenWithTheirWindow) {
  const std::vector<CurvePoint> curve = {{1, 100}, {40, 50}, {90, 49.6}};
  EXPECT_FALSE(OnPlateau(curve, 60, 64)) << "too few trials";
  EXPECT_FALSE(OnPlateau(curve, 100, 64)) << "halved within the window";
  EXPECT_TRUE(OnPlateau(curve, 110, 64)) << "less than 1 % is no gain";
  EXPECT_FALSE(OnPlateau({}, 100, 64)) << "nothing valid: not a plateau";
}

TEST(TaskChoiceTest, KnownRecordsShrinkTheBudget) {
  EXPECT_EQ(MakeGradientBudget(64, 16, {0, 0, 0}).total, 192);
  EXPECT_EQ(MakeGradientBudget(64, 16, {100, 20, 0}).total, 72);
  EXPECT_EQ(MakeGradientBudget(64, 16, {100, 20, 72}).total, 0) << "a second time measures nothing";
  EXPECT_EQ(MakeGradientBudget(64, 16, {500, 64, 0}).total, 16) << "the floor is owed";
  EXPECT_EQ(MakeGradientBudget(4, 2, {6, 5, 1}).total, 0)
      << "the same job again, with a small space";
}

}  // namespace
}  // namespace heddle::scheduler
