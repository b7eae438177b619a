#include "client/modules/streams.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/time/clock.h"
#include "client/zoo/zoo.h"
#include "compiler/driver/compile.h"

namespace heddle::client {
namespace {

runtime::Module Mlp() {
  CompileOptions options;
  options.choice = ScheduleChoice::kDefault;
  options.model_name = "mlp";
  const auto bytes = CompileModel(*zoo::MakeZooModel("mlp", 1), {}, Target{}, {}, options);
  EXPECT_TRUE(bytes.ok()) << bytes.status();
  return *runtime::ParseModule(*bytes);
}

TEST(Streams, EachInferenceOfAllStreamsCounts) {
  const runtime::Module module = Mlp();
  const std::string input = RandomTensor(module.manifest.inputs[0], 1);
  const auto timed = TimeStreams({{&module, {}, {input}, 0}},
                                 {.streams = 2, .duration = absl::Milliseconds(300), .stop = {}});
  ASSERT_TRUE(timed.ok()) << timed.status();
  const StreamTiming& timing = timed->front();
  EXPECT_GT(timing.latencies.count(), 10);
  EXPECT_GE(timing.ran, absl::Milliseconds(300));
  EXPECT_LE(timing.latencies.Percentile(50), timing.latencies.Percentile(99));
  EXPECT_LE(timing.latencies.Percentile(99), timing.latencies.Percentile(100));
  // Two streams cannot have spent more than twice the time.
  EXPECT_LE(timing.latencies.Percentile(0) * static_cast<double>(timing.latencies.count()),
            2 * absl::ToDoubleNanoseconds(timing.ran));
  EXPECT_NEAR(timing.Throughput() * absl::ToDoubleSeconds(timing.ran),
              static_cast<double>(timing.latencies.count()), 0.5);
}

TEST(Streams, SeveralModulesShareTheMachineInTurns) {
  const runtime::Module module = Mlp();
  const std::string input = RandomTensor(module.manifest.inputs[0], 1);
  const auto timed = TimeStreams({{&module, {}, {input}, 0}, {&module, {}, {input}, 0}},
                                 {.streams = 1, .duration = absl::Milliseconds(200), .stop = {}});
  ASSERT_TRUE(timed.ok()) << timed.status();
  ASSERT_EQ(timed->size(), 2u);
  for (const StreamTiming& timing : *timed) {
    EXPECT_GT(timing.latencies.count(), 0);
    EXPECT_GE(timing.ran, absl::Milliseconds(200));
    EXPECT_LT(timing.ran, absl::Seconds(2));
  }
}

TEST(Streams, CanBeStopped) {
  const runtime::Module module = Mlp();
  const std::string input = RandomTensor(module.manifest.inputs[0], 1);
  const absl::Time begin = absl::Now();
  const auto timed =
      TimeStreams({{&module, {}, {input}, 0}},
                  {.streams = 1, .duration = absl::Minutes(10), .stop = [] { return true; }});
  ASSERT_TRUE(timed.ok()) << timed.status();
  EXPECT_LT(absl::Now() - begin, absl::Minutes(1));
}

}  // namespace
}  // namespace heddle::client
