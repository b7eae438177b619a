// Random program x random legal schedule against the interpreter.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <map>

#include "tests/schedule/oracle.h"
#include "tests/schedule/random_programs.h"

namespace heddle::schedule {
namespace {

constexpr int kPairs = 2400;
constexpr int kMaxSteps = 12;

// HEDDLE_SEED=n checks that pair only; HEDDLE_PAIRS=n checks pairs 1..n.
TEST(RandomSchedule, ComputesWhatTheNaiveProgramComputes) {
  const char* one = std::getenv("HEDDLE_SEED");
  uint64_t first = one ? std::strtoull(one, nullptr, 10) : 1;
  const char* many = std::getenv("HEDDLE_PAIRS");
  uint64_t pairs = many ? std::strtoull(many, nullptr, 10) : kPairs;
  uint64_t last = one ? first : pairs;
  int64_t steps = 0;
  std::map<Primitive, int64_t> uses;
  for (uint64_t seed = first; seed <= last; ++seed) {
    Rng rng(seed);
    auto naive = RandomProgram(rng);
    ASSERT_TRUE(naive.ok()) << naive.status();
    auto trace = RandomTrace(*naive, kMaxSteps, rng);
    ASSERT_TRUE(trace.ok()) << "seed " << seed << ": " << trace.status();
    steps += static_cast<int64_t>(trace->steps.size());
    for (const Step& step : trace->steps) ++uses[step.primitive];
    if (!CheckTrace(*naive, *trace, seed).ok()) FAIL() << Explain(*naive, *trace, seed);
    // The text form replays to the same trace.
    auto parsed = ParseTrace(ToText(*trace));
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    ASSERT_TRUE(*parsed == *trace) << ToText(*trace);
  }
  if (!one) {
    // Every primitive takes part.
    for (int k = 0; k <= static_cast<int>(Primitive::kSetScope); ++k) {
      EXPECT_GT(uses[static_cast<Primitive>(k)], 30) << "primitive " << k;
    }
    EXPECT_GT(steps, static_cast<int64_t>(4 * pairs));
  }
  std::printf("%llu pairs, %lld steps, no mismatch\n",
              static_cast<unsigned long long>(last - first + 1), static_cast<long long>(steps));
}

}  // namespace
}  // namespace heddle::schedule
