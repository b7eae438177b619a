#include "scheduler/core/target_match.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace heddle::scheduler {
namespace {

TEST(TargetMatchTest, ThreadsAreTakenOut) {
  auto needs = ParseTargetNeeds("llvm -mcpu=znver5 -mattr=+a,-b -threads=2");
  ASSERT_TRUE(needs.ok());
  EXPECT_EQ(needs->device_target, "llvm -mcpu=znver5 -mattr=+a,-b");
  EXPECT_EQ(needs->threads, 2);
  EXPECT_EQ(ParseTargetNeeds("llvm -mcpu=x")->threads, 1);
  EXPECT_EQ(ParseTargetNeeds("llvm -mcpu=x -threads=2 -winograd=off")->device_target,
            "llvm -mcpu=x");
  EXPECT_EQ(ParseTargetNeeds("cuda -arch=sm_90")->threads, 0);
  EXPECT_EQ(ParseTargetNeeds("cuda -arch=sm_90 -tf32=on")->device_target, "cuda -arch=sm_90");
}

TEST(TargetMatchTest, RefusalsNameTheOption) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "empty"},
      {"gcc -mcpu=x", "gcc"},
      {"llvm", "no processor"},
      {"llvm -mcpu=native", "native"},
      {"llvm -mcpu=x -threads=0", "-threads"},
      {"llvm -mcpu=x -threads=many", "-threads"},
      {"llvm -mcpu=x -speed=9", "-speed=9"},
      {"llvm -mcpu=", "-mcpu="},
      {"cuda -mcpu=x", "-mcpu=x"},
  };
  for (const auto& [text, word] : cases) {
    auto needs = ParseTargetNeeds(text);
    EXPECT_EQ(needs.status().code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(needs.status().message()), ::testing::HasSubstr(word)) << text;
  }
}

}  // namespace
}  // namespace heddle::scheduler
