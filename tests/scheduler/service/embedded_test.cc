#include "scheduler/service/embedded.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

namespace heddle::scheduler {
namespace {

using ::testing::ElementsAre;

TEST(PlanSlotsTest, EveryMachineCanBuildAndMeasure) {
  const SlotPlan one = PlanSlots({5});
  EXPECT_THAT(one.cpu_slots, ElementsAre("5"));
  EXPECT_THAT(one.device_slots, ElementsAre("5")) << "in turn";
  const SlotPlan two = PlanSlots({0, 1});
  EXPECT_THAT(two.cpu_slots, ElementsAre("0"));
  EXPECT_THAT(two.device_slots, ElementsAre("1", "0-1"));
  const SlotPlan four = PlanSlots({0, 1, 4, 5});
  EXPECT_THAT(four.cpu_slots, ElementsAre("0", "1", "4"));
  EXPECT_THAT(four.device_slots, ElementsAre("5"));
}

TEST(EmbeddedTest, TheSchedulerKeepsOffTheCoreThatMeasures) {
  const std::vector<int> all = AvailableCores();
  if (all.size() < 2) GTEST_SKIP() << "one core does everything in turn";
  std::vector<int> confined, inherited;
  std::thread([&] {
    ConfineToCpuSlots(all);
    confined = AvailableCores();
    std::thread([&] { inherited = AvailableCores(); }).join();
  }).join();
  EXPECT_EQ(confined, std::vector<int>(all.begin(), all.end() - 1));
  EXPECT_EQ(inherited, confined);
  EXPECT_EQ(AvailableCores(), all);
}

TEST(EmbeddedTest, AMissingBinaryIsNamed) {
  const auto cluster = EmbeddedCluster::Start({"/nowhere", ::testing::TempDir(), {0, 1}});
  EXPECT_TRUE(absl::IsNotFound(cluster.status()));
  EXPECT_THAT(std::string(cluster.status().message()),
              ::testing::HasSubstr("/nowhere/heddle-tracker"));
}

// The worker says itself whether stages can be confined; this one says no.
TEST(EmbeddedTest, AHostThatCannotConfineStagesIsRefused) {
  std::string folder = ::testing::TempDir() + "/embedded-XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  for (const char* name : {"/heddle-tracker", "/heddle-worker"}) {
    std::ofstream(folder + name) << "#!/bin/sh\nexit 1\n";
    std::filesystem::permissions(folder + name, std::filesystem::perms::owner_all);
  }
  EmbeddedCluster::Options options{folder, folder, {0, 1}};
  options.require_confinement = true;
  const auto cluster = EmbeddedCluster::Start(options);
  EXPECT_TRUE(absl::IsInvalidArgument(cluster.status())) << cluster.status();
  EXPECT_THAT(std::string(cluster.status().message()),
              ::testing::HasSubstr("stages cannot be confined on this host; `" + folder +
                                   "/heddle-worker --check` says what is missing"));
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace heddle::scheduler
