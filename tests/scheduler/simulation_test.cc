#include "tests/scheduler/simulation.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace heddle::scheduler {
namespace {

// HEDDLE_SEED replays one seed; HEDDLE_SEEDS says how many.
TEST(SimulationTest, PromisesHoldUnderFaults) {
  const char* one = std::getenv("HEDDLE_SEED");
  const char* many = std::getenv("HEDDLE_SEEDS");
  const uint64_t first = one != nullptr ? std::strtoull(one, nullptr, 10) : 1;
  const uint64_t count = one != nullptr    ? 1
                         : many != nullptr ? std::strtoull(many, nullptr, 10)
                                           : 400;
  SimulationResult all;
  for (uint64_t seed = first; seed < first + count; ++seed) {
    SimulationOptions options;
    options.seed = seed;
    const SimulationResult result = Simulate(options);
    ASSERT_EQ(result.violation, "") << "replay with HEDDLE_SEED=" << seed;
    all.steps += result.steps;
    all.trials += result.trials;
    all.restarts += result.restarts;
    all.infrastructure_faults += result.infrastructure_faults;
    all.lost += result.lost;
    all.done_jobs += result.done_jobs;
  }
  std::printf(
      "%llu seeds: %lld events, %lld trials, %lld restarts, %lld infrastructure faults, %lld lost "
      "trials, %lld jobs done\n",
      static_cast<unsigned long long>(count), static_cast<long long>(all.steps),
      static_cast<long long>(all.trials), static_cast<long long>(all.restarts),
      static_cast<long long>(all.infrastructure_faults), static_cast<long long>(all.lost),
      static_cast<long long>(all.done_jobs));
  if (one != nullptr) return;
  // A simulation in which nothing happens proves nothing.
  EXPECT_GT(all.trials, static_cast<int64_t>(count) * 20);
  EXPECT_GT(all.restarts, static_cast<int64_t>(count) / 4);
  EXPECT_GT(all.infrastructure_faults, static_cast<int64_t>(count));
  EXPECT_GT(all.done_jobs, static_cast<int64_t>(count) / 2);
}

TEST(SimulationTest, WithoutFaultsNothingIsLost) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    SimulationOptions options;
    options.seed = seed;
    options.faults = false;
    const SimulationResult result = Simulate(options);
    ASSERT_EQ(result.violation, "");
    EXPECT_EQ(result.lost, 0);
    EXPECT_EQ(result.infrastructure_faults, 0);
  }
}

TEST(SimulationTest, TheSameSeedGivesTheSameDecisions) {
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    SimulationOptions options;
    options.seed = seed;
    const SimulationResult a = Simulate(options), b = Simulate(options);
    EXPECT_EQ(a.fingerprint, b.fingerprint);
    EXPECT_EQ(a.steps, b.steps);
  }
}

// Each planted bug must be seen within a few seeds.
class PlantedTest : public ::testing::TestWithParam<Planted> {};
TEST_P(PlantedTest, IsSeen) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SimulationOptions options;
    options.seed = seed;
    options.planted = GetParam();
    options.faults = false;
    const SimulationResult result = Simulate(options);
    if (!result.violation.empty()) {
      std::printf("seen: %s\n", result.violation.c_str());
      return;
    }
  }
  FAIL() << "nobody noticed";
}
INSTANTIATE_TEST_SUITE_P(All, PlantedTest,
                         ::testing::Values(Planted::kDropClose, Planted::kDropFeed,
                                           Planted::kRecordTwice, Planted::kWrongSlot,
                                           Planted::kStartTwice));

}  // namespace
}  // namespace heddle::scheduler
