#include "tests/classical/damage.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>

#include "compiler/classical/read.h"

namespace heddle::classical {
namespace {

constexpr int kCuts = 300;
constexpr int kMutations = 1000;

void Read(std::string_view file) {
  const absl::StatusOr<Forest> forest = ReadForest(file);
  if (forest.ok()) {
    EXPECT_TRUE(CheckForest(*forest).ok()) << CheckForest(*forest);
    return;
  }
  EXPECT_EQ(forest.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(forest.status().message().find('\n'), std::string_view::npos) << forest.status();
}

}  // namespace

void ExpectSafeReadingOfDamage(std::string_view file) {
  const size_t step = std::max<size_t>(1, file.size() / kCuts);
  for (size_t bytes = 0; bytes < file.size(); bytes += step) Read(file.substr(0, bytes));
  std::mt19937_64 rng(1);
  for (int i = 0; i < kMutations; ++i) {
    std::string damaged(file);
    for (uint64_t k = 1 + rng() % 3; k > 0; --k) {
      const size_t at = rng() % damaged.size();
      // Bytes that mean something are likelier to lead further than any byte.
      constexpr std::string_view kTelling = "0123456789-.,[]{}\"eLUdl$#= \n";
      const char byte = rng() % 2 ? kTelling[rng() % kTelling.size()] : static_cast<char>(rng());
      switch (rng() % 4) {
        case 0:
          damaged.insert(damaged.begin() + static_cast<std::ptrdiff_t>(at), byte);
          break;
        case 1:
          damaged.erase(at, 1 + rng() % 20);
          break;
        default:
          damaged[at] = byte;
      }
      if (damaged.empty()) break;
    }
    Read(damaged);
  }
}

}  // namespace heddle::classical
