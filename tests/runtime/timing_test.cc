#include "compiler/runtime/timing.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

namespace heddle::runtime {
namespace {

TEST(TimingTest, StatisticsOfKnownSamples) {
  Timing timing;
  EXPECT_EQ(timing.MedianNs(), 0);
  timing.samples_ns = {5, 1, 4, 2, 3};
  EXPECT_EQ(timing.MinNs(), 1);
  EXPECT_EQ(timing.MedianNs(), 3);
  EXPECT_EQ(timing.PercentileNs(0), 1);
  EXPECT_EQ(timing.PercentileNs(20), 1);
  EXPECT_EQ(timing.PercentileNs(21), 2);
  EXPECT_EQ(timing.PercentileNs(90), 5);
  EXPECT_EQ(timing.PercentileNs(100), 5);
  timing.samples_ns.push_back(6);
  EXPECT_EQ(timing.MedianNs(), 3.5);
}

TEST(TimingTest, SamplesAreMeansOfOneCall) {
  TimingOptions options;
  options.repeats = 4;
  options.min_repeat = absl::Milliseconds(8);
  options.warmup_calls = 2;
  int64_t calls = 0;
  const Timing timing = TimeCalls(
      [&] {
        ++calls;
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
      },
      options);
  EXPECT_EQ(timing.samples_ns.size(), 4u);
  EXPECT_EQ(timing.calls, calls);
  // A sleep never takes less than asked: so each sample is at least one call's time, and at most
  // four calls fill a repeat.
  EXPECT_GE(timing.MinNs(), 2e6);
  EXPECT_LE(calls, 2 + 4 * 4);
}

TEST(TimingTest, ColdCallsAreTimedWithoutTheFlushing) {
  TimingOptions options;
  options.repeats = 3;
  options.min_repeat = absl::Milliseconds(1);
  options.flush_bytes = int64_t{16} << 20;
  int64_t calls = 0;
  volatile int sink = 0;
  const auto call = [&] { sink = sink + 1, ++calls; };
  const Timing cold = TimeCalls(call, options);
  EXPECT_EQ(cold.samples_ns.size(), 3u);
  EXPECT_EQ(cold.calls, calls);
  // Flushing takes longer than three times the repeat, so the call never fills it: the limit ends
  // the sample, and what was timed is the call, not the 16 MiB.
  EXPECT_LT(cold.calls, 1000);
  options.flush_bytes = 0;
  EXPECT_GT(TimeCalls(call, options).calls, cold.calls);
}

// Every fourth call takes more than a repeat, so each sample ends with one. Their mean would be a quarter of that at least.
TEST(TimingTest, AColdSampleIsTheMedianOfItsCalls) {
  TimingOptions options;
  options.repeats = 3;
  options.min_repeat = absl::Milliseconds(50);
  options.warmup_calls = 0;
  options.flush_bytes = 1 << 20;
  int calls = 0;
  const auto call = [&] {
    if (++calls % 4 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(60));
  };
  const Timing timing = TimeCalls(call, options);
  EXPECT_GE(timing.calls, 4);
  EXPECT_LT(timing.MedianNs(), 60e6 / 4);
}

// Beside a call that takes no time, reading the clock does.
TEST(TimingTest, ShortWarmCallsAreRepeatedBetweenFlushes) {
  TimingOptions options;
  options.repeats = 3;
  options.min_repeat = absl::Milliseconds(1);
  options.flush_bytes = 1 << 20;
  int64_t calls = 0, warmed = 0;
  volatile int sink = 0;
  const auto call = [&] { sink = sink + 1, ++calls; };
  options.warm = [&] { ++warmed; };
  const Timing alone = TimeCalls(call, options);
  EXPECT_EQ(alone.calls, warmed + options.warmup_calls);
  calls = warmed = 0;
  options.least_ns = 1e6;
  const Timing repeated = TimeCalls(call, options);
  EXPECT_EQ(repeated.calls, calls);
  EXPECT_GT(repeated.calls, 10 * warmed);
  EXPECT_LT(repeated.MedianNs(), alone.MedianNs());
  // One that takes long enough is not repeated.
  warmed = 0;
  const Timing slow =
      TimeCalls([] { std::this_thread::sleep_for(std::chrono::milliseconds(1)); }, options);
  EXPECT_EQ(slow.calls, warmed + options.warmup_calls);
}

TEST(TimingTest, ShortCallsFillTheRepeat) {
  TimingOptions options;
  options.repeats = 2;
  options.min_repeat = absl::Milliseconds(5);
  volatile int sink = 0;
  const Timing timing = TimeCalls([&] { sink = sink + 1; }, options);
  EXPECT_GT(timing.calls, 1000);
  EXPECT_GE(timing.samples_ns[0] * timing.calls, 5e6);
}

TEST(TimingTest, TheLimitLeavesAtLeastOneSample) {
  TimingOptions options;
  options.repeats = 1000;
  options.min_repeat = absl::Milliseconds(1);
  options.warmup_calls = 1000;
  options.limit = absl::Milliseconds(4);
  options.flush_bytes = 1 << 20;
  const Timing timing =
      TimeCalls([] { std::this_thread::sleep_for(std::chrono::milliseconds(1)); }, options);
  EXPECT_GE(timing.samples_ns.size(), 1u);
  EXPECT_LE(timing.calls, 10);
}

// A sleep never takes less than asked, so these rivals are out of reach.
TEST(TimingTest, AFunctionSlowerThanItsRivalIsTimedShortly) {
  TimingOptions options;
  options.repeats = 5;
  options.min_repeat = absl::Milliseconds(16);
  options.flush_bytes = 1 << 20;
  const auto call = [] { std::this_thread::sleep_for(std::chrono::milliseconds(4)); };
  options.rival_ns = 4e6 / 2;
  const Timing far = TimeCalls(call, options);
  EXPECT_EQ(far.samples_ns.size(), 1u);
  EXPECT_EQ(far.calls, options.warmup_calls + kFewCalls) << "it does not even fill the sample";
  EXPECT_GE(far.MedianNs(), 4e6);
  options.flush_bytes = 0;
  EXPECT_EQ(TimeCalls(call, options).samples_ns.size(), static_cast<size_t>(kFewSamples));
  options.rival_ns = 1e12;
  EXPECT_EQ(TimeCalls(call, options).samples_ns.size(), 5u) << "a winner is timed in full";
  options.flush_bytes = 1 << 20;
  EXPECT_EQ(TimeCalls(call, options).samples_ns.size(), 5u);
}

}  // namespace
}  // namespace heddle::runtime
