#include "worker/slots.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace heddle::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Slots, CommandLineForms) {
  const auto slots = ParseSlots({"0"}, {"1", "1-0,2"}, {0, 1, 2});
  ASSERT_TRUE(slots.ok()) << slots.status();
  ASSERT_EQ(slots->size(), 4u);
  EXPECT_EQ((*slots)[0].name, "cpu0");
  EXPECT_FALSE((*slots)[0].device);
  EXPECT_EQ((*slots)[2].name, "profile0-1");
  EXPECT_THAT((*slots)[2].cores, ElementsAre(0, 1));
  EXPECT_TRUE((*slots)[2].device);
  EXPECT_EQ((*slots)[3].name, "profile2");
  EXPECT_TRUE(ShareCore((*slots)[0], (*slots)[2]));
  EXPECT_FALSE(ShareCore((*slots)[0], (*slots)[1]));
}

TEST(Slots, AutoTakesTheCoresThatThereAre) {
  const auto names = [](std::vector<std::string> cpu, std::vector<std::string> device,
                        std::vector<int> usable) {
    std::vector<std::string> found;
    const auto slots = ParseSlots(cpu, device, usable);
    for (const SlotConfig& slot : slots.value()) found.push_back(slot.name);
    return found;
  };
  EXPECT_THAT(names({"auto"}, {"auto"}, {2, 3, 5}), ElementsAre("cpu2", "cpu3", "profile5"));
  EXPECT_THAT(names({"auto"}, {"auto"}, {4, 5}), ElementsAre("cpu4", "profile5"));
  EXPECT_THAT(names({"auto"}, {"auto"}, {7}), ElementsAre("cpu7", "profile7"));
  EXPECT_THAT(names({"auto"}, {}, {4, 5}), ElementsAre("cpu4", "cpu5"));
  EXPECT_THAT(names({"4"}, {"auto"}, {4, 5}), ElementsAre("cpu4", "profile4", "profile5"));
  EXPECT_FALSE(ParseSlots({"auto,1"}, {}, {0, 1}).ok());
}

TEST(Slots, TheSupervisorKeepsOffWhatMeasures) {
  const auto cores = [](std::vector<std::string> cpu, std::vector<std::string> device,
                        std::vector<int> usable) {
    return SupervisorCores(ParseSlots(cpu, device, usable).value(), usable);
  };
  EXPECT_THAT(cores({"0,1"}, {"3"}, {0, 1, 2, 3}), ElementsAre(0, 1, 2));
  EXPECT_THAT(cores({}, {"1"}, {0, 1}), ElementsAre(0));
  // A device slot of all cores cannot be kept free: the CPU slot's core is shared in turn anyway.
  EXPECT_THAT(cores({"0"}, {"1", "0-1"}, {0, 1}), ElementsAre(0));
  EXPECT_THAT(cores({"0"}, {"0"}, {0}), ElementsAre(0));
  EXPECT_THAT(cores({}, {"0-1"}, {0, 1}), ElementsAre(0, 1));
}

TEST(Slots, RefusalsNameTheSlot) {
  const auto message = [](std::vector<std::string> cpu, std::vector<std::string> device) {
    return std::string(ParseSlots(cpu, device, {0, 1}).status().message());
  };
  EXPECT_THAT(message({"a"}, {}), HasSubstr("'a'"));
  EXPECT_THAT(message({""}, {}), HasSubstr("''"));
  EXPECT_THAT(message({"0-"}, {}), HasSubstr("'0-'"));
  EXPECT_THAT(message({"5"}, {}), HasSubstr("core 5 is not usable here; usable are 0,1"));
  EXPECT_THAT(message({"0-0"}, {}), HasSubstr("names a core twice"));
  EXPECT_THAT(message({"0,0"}, {}), HasSubstr("cpu0 twice"));
}

TEST(Slots, GpusAreSlotsWithoutCores) {
  const auto slots = ParseGpuSlots({"cuda:1,cuda:0", "cuda:12"});
  ASSERT_TRUE(slots.ok()) << slots.status();
  ASSERT_EQ(slots->size(), 3u);
  EXPECT_EQ((*slots)[0].name, "cuda1");
  EXPECT_EQ((*slots)[0].gpu, "cuda:1");
  EXPECT_TRUE((*slots)[0].device);
  EXPECT_TRUE((*slots)[0].cores.empty());
  EXPECT_FALSE(ShareCore((*slots)[0], (*slots)[0]));
  EXPECT_EQ(ParseGpuSlots({"another:3"})->front().name, "another3");
  for (const char* bad : {"", "0", "cuda", "cuda:", "cuda:-1", "cuda:x", "cuda:0,cuda:0"}) {
    EXPECT_FALSE(ParseGpuSlots({bad}).ok()) << bad;
  }
}

}  // namespace
}  // namespace heddle::worker
