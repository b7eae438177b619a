// When work is worth several threads: more is saved than waking costs.
#include "compiler/machine/worth_threads.h"

#include <gtest/gtest.h>

namespace heddle::machine {
namespace {

// A clock of 2 GHz; 10 bytes in a cycle from the second-level cache of 1 MB, and 2 from beyond.
TargetInfo Machine(int threads, double wake_ns) {
  TargetInfo target;
  target.target.threads = threads;
  target.l2_bytes = 1'000'000;
  target.core.clock_ghz = 2;
  target.core.l2_bytes_per_cycle = 10;
  target.core.l3_bytes_per_cycle = 2;
  target.core.wake_ns = wake_ns;
  return target;
}

TEST(WorthThreads, TheSlowerOfArithmeticAndMemoryBoundsTheWork) {
  const TargetInfo target = Machine(2, 1000);
  EXPECT_DOUBLE_EQ(NsAlone({.cycles = 3000, .bytes = 100}, target), 1500);
  EXPECT_DOUBLE_EQ(NsAlone({.cycles = 3000, .bytes = 100'000}, target), 5000);
  // What does not fit the cache comes from beyond it.
  EXPECT_DOUBLE_EQ(NsAlone({.bytes = 1'000'000}, target), 50'000);
  EXPECT_DOUBLE_EQ(NsAlone({.bytes = 1'000'002}, target), 250'000.5);
}

TEST(WorthThreads, IfTheySaveMoreThanWakingCosts) {
  // Two threads save half of the time, and four save three quarters.
  struct Case {
    int threads;
    double wake_ns, least_ns;
  };
  for (const auto& [threads, wake_ns, least_ns] :
       {Case{2, 1'000, 2'000}, Case{2, 100'000, 200'000}, Case{4, 750, 1'000}}) {
    const TargetInfo target = Machine(threads, wake_ns);
    EXPECT_FALSE(WorthThreads(least_ns, target)) << threads;
    EXPECT_TRUE(WorthThreads(least_ns * 1.01, target)) << threads;
    EXPECT_FALSE(WorthThreads({.cycles = 2 * least_ns}, target)) << threads;
    EXPECT_TRUE(WorthThreads({.cycles = 2.02 * least_ns}, target)) << threads;
  }
  // There is nobody to wake.
  EXPECT_FALSE(WorthThreads(1e9, Machine(1, 0)));
}

}  // namespace
}  // namespace heddle::machine
