// A small part of what heddle-fingerprint prints, against tests/cases/fingerprints.txt.
// HEDDLE_BLESS=1 writes what came out; say in the commit why it changed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "tests/fingerprint/fingerprint.h"
#include "tests/places.h"

namespace heddle::fingerprint {
namespace {

constexpr char kFile[] = HEDDLE_SOURCE_DIR "/tests/cases/fingerprints.txt";

TEST(FingerprintTest, BehaviourIsWhatItWas) {
  std::vector<std::string> lines;
  CompilerOptions compiler;
  compiler.models = {"mlp", "dqn", "dcgan"};
  compiler.targets = {"llvm -mcpu=sapphirerapids -threads=2", "llvm -mcpu=znver3",
                      "cuda -arch=sm_90"};
  compiler.points = 2;
  compiler.machine_code = false;  // another release of LLVM gives other code
  ASSERT_EQ(FingerprintCompiler(compiler, Lines(&lines)), absl::OkStatus());
  ASSERT_EQ(
      FingerprintDispatcher({"predictive", "round_robin", "sequential"}, 1, 10, Lines(&lines)),
      absl::OkStatus());
  if (std::getenv("HEDDLE_BLESS") != nullptr) {
    std::ofstream out(kFile);
    for (const std::string& line : lines) out << line << "\n";
    return;
  }
  std::vector<std::string> expected;
  std::ifstream in(kFile);
  for (std::string line; std::getline(in, line);) expected.push_back(line);
  EXPECT_THAT(lines, ::testing::ElementsAreArray(expected));
}

}  // namespace
}  // namespace heddle::fingerprint
