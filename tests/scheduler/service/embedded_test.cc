#include "scheduler/service/embedded.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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
  const auto cluster = EmbeddedCluster::Start({"/nowhere", ::testing::TempDir(), false, {0, 1}});
  EXPECT_TRUE(absl::IsNotFound(cluster.status()));
  EXPECT_THAT(std::string(cluster.status().message()),
              ::testing::HasSubstr("/nowhere/heddle-tracker"));
}

}  // namespace
}  // namespace heddle::scheduler
