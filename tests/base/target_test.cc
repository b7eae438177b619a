#include "base/vocabulary/target.h"

#include <gtest/gtest.h>

namespace heddle {
namespace {

TEST(Target, CanonicalTextRoundTrips) {
  for (const char* text : {"llvm -mcpu=znver5", "llvm -mcpu=native -threads=2",
                           "llvm -mcpu=sapphirerapids -mattr=+amx-tile,-avx512f",
                           "llvm -mcpu=cortex-a72 -triple=aarch64-linux-gnu",
                           "llvm -mcpu=native -threads=2 -winograd=off", "cuda -arch=sm_90",
                           "cuda -arch=sm_90a", "cuda -arch=sm_80 -tf32=on"}) {
    const auto target = ParseTarget(text);
    ASSERT_TRUE(target.ok()) << target.status();
    EXPECT_EQ(ToText(*target), text);
  }
}

TEST(Target, EqualTargetsHaveEqualText) {
  const auto text = [](const char* t) { return ToText(*ParseTarget(t)); };
  EXPECT_EQ(text("llvm"), "llvm -mcpu=native");
  EXPECT_EQ(text("llvm -winograd=on"), "llvm -mcpu=native");
  EXPECT_TRUE(ParseTarget("llvm")->winograd);
  EXPECT_FALSE(ParseTarget("llvm -winograd=off")->winograd);
  EXPECT_EQ(text("  llvm   -threads=1 -mcpu=x86-64 "), "llvm -mcpu=x86-64");
  EXPECT_EQ(text("cuda -tf32=off -arch=sm_90"), "cuda -arch=sm_90");
  EXPECT_EQ(text("cuda"), "cuda -arch=native");
  EXPECT_EQ(text("cuda -tf32=on"), "cuda -arch=native -tf32=on");
  EXPECT_EQ(text("llvm -mattr=-b,+a,+b -mcpu=c"), text("llvm -mcpu=c -mattr=+a,+b"));
}

TEST(Target, TheFirstWordIsTheKind) {
  EXPECT_EQ(TargetKinds().size(), 2u);
  for (const TargetKind kind : TargetKinds()) {
    Target target{.kind = kind, .cpu = "sm_90"};
    EXPECT_EQ(KindOf(ToText(target)), KindName(kind));
    EXPECT_EQ(ParseTarget(ToText(target))->kind, kind);
  }
  EXPECT_EQ(KindName(kHostKind), "llvm");
  EXPECT_EQ(KindOf("cuda"), "cuda");
  EXPECT_EQ(KindOf("rocm -arch=gfx90a"), "rocm");
  EXPECT_EQ(KindOf("cudarama -arch=sm_90"), "cudarama") << "a longer word is another kind";
}

TEST(Target, RefusalsNameTheOption) {
  const auto message = [](const char* t) { return std::string(ParseTarget(t).status().message()); };
  EXPECT_NE(message("").find("empty"), std::string::npos);
  EXPECT_NE(message("rocm -arch=gfx90a").find("'rocm'"), std::string::npos);
  EXPECT_NE(message(std::string(5000, 'a').c_str()).find("too long"), std::string::npos);
  EXPECT_NE(message("llvm -mcpu=").find("-mcpu"), std::string::npos);
  EXPECT_NE(message("cuda -mcpu=x").find("-mcpu"), std::string::npos);
  EXPECT_NE(message("llvm -march=x").find("'-march'"), std::string::npos);
  EXPECT_NE(message("llvm -mcpu").find("wants a value"), std::string::npos);
  EXPECT_NE(message("llvm -threads=0").find("1..256"), std::string::npos);
  EXPECT_NE(message("llvm -threads=two").find("'two'"), std::string::npos);
  EXPECT_NE(message("llvm -winograd=no").find("on or off, not 'no'"), std::string::npos);
  EXPECT_NE(message("llvm -mattr=avx").find("'avx'"), std::string::npos);
  EXPECT_NE(message("cuda -arch=").find("sm_90, or native"), std::string::npos);
  EXPECT_NE(message("cuda -arch=90").find("'90'"), std::string::npos);
  EXPECT_NE(message("cuda -arch=sm_90 -tf32=yes").find("on or off, not 'yes'"), std::string::npos);
  EXPECT_NE(message("llvm -mcpu=a;b").find("'a;b'"), std::string::npos);
}

TEST(Target, DeviceNeedsLeaveOutHowTheDeviceIsUsed) {
  const auto needs = [](const char* t) { return NeedsOf(*ParseTarget(t)); };
  EXPECT_EQ(needs("llvm -mcpu=x -mattr=+a,-b -threads=2").target, "llvm -mcpu=x -mattr=+a,-b");
  EXPECT_EQ(needs("llvm -mcpu=x -threads=2 -winograd=off").target, "llvm -mcpu=x");
  EXPECT_EQ(needs("llvm -mcpu=x -threads=2").cores, 2);
  EXPECT_EQ(needs("llvm -mcpu=x").cores, 1);
  EXPECT_EQ(needs("cuda -arch=sm_90 -tf32=on").target, "cuda -arch=sm_90");
  EXPECT_EQ(needs("cuda -arch=sm_90").cores, 0);
}

}  // namespace
}  // namespace heddle
