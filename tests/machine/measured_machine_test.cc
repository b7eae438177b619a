// The text of a measured machine, and what it changes in the description of a target.
#include "compiler/machine/measured_machine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "compiler/codegen/backend.h"
#include "tests/machine/example_machine.h"

namespace heddle::machine {
namespace {

TEST(MeasuredMachine, TextRoundTrips) {
  const MeasuredMachine machine = ExampleMachine();
  const std::string text = ToText(machine);
  const auto parsed = ParseMeasuredMachine(text);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(*parsed, machine);
  EXPECT_EQ(ToText(*parsed), text);
  // The order of the lines does not matter.
  std::vector<std::string> lines = absl::StrSplit(text, '\n', absl::SkipEmpty());
  std::mt19937 rng(1);
  for (int i = 0; i < 20; ++i) {
    std::shuffle(lines.begin() + 1, lines.end(), rng);
    const auto again = ParseMeasuredMachine(absl::StrJoin(lines, "\n"));
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_EQ(*again, machine);
  }
}

TEST(MeasuredMachine, RandomFiguresRoundTrip) {
  std::mt19937_64 rng(2);
  std::uniform_real_distribution<double> scale(0.2, 50);
  for (int i = 0; i < 1000; ++i) {
    MeasuredMachine machine = ExampleMachine();
    for (double* rate : {&machine.clock_ghz, &machine.gflops, &machine.l1_gbps,
                         &machine.memory_gbps, &machine.wake_ns, &machine.multiply_add_ns})
      *rate = scale(rng);
    const auto once = ParseMeasuredMachine(ToText(machine));
    ASSERT_TRUE(once.ok()) << once.status();
    EXPECT_NEAR(once->gflops, machine.gflops, 1e-5 * machine.gflops);
    EXPECT_EQ(ToText(*once), ToText(machine));
    EXPECT_EQ(*ParseMeasuredMachine(ToText(*once)), *once);
  }
}

TEST(MeasuredMachine, RefusalsNameTheLine) {
  const std::string text = ToText(ExampleMachine());
  const auto refused = [&](absl::string_view was, absl::string_view is) {
    const auto parsed = ParseMeasuredMachine(absl::StrReplaceAll(text, {{was, is}}));
    EXPECT_TRUE(absl::IsInvalidArgument(parsed.status())) << was << " -> " << is;
    return std::string(parsed.status().message());
  };
  using testing::HasSubstr;
  EXPECT_THAT(refused("machine 1", "machine 2"), HasSubstr("first line is not 'machine 1'"));
  EXPECT_THAT(refused("gflops 160", "gflops nan"), HasSubstr("'gflops nan': it is no number"));
  EXPECT_THAT(refused("gflops 160", "gflops inf"), HasSubstr("no number"));
  EXPECT_THAT(refused("gflops 160", "gflops -160"), HasSubstr("it must be 0.01 to 100000"));
  EXPECT_THAT(refused("cores 4", "cores 0"), HasSubstr("it must be 1 to 4096"));
  EXPECT_THAT(refused("cores 4", "cores 4.5"), HasSubstr("no number"));
  EXPECT_THAT(refused("cores 4", "cores 4\ncores 4"), HasSubstr("twice"));
  EXPECT_THAT(refused("cores 4", "wings 4"), HasSubstr("no such figure"));
  EXPECT_THAT(refused("cores 4\n", ""), HasSubstr("lacks the figure cores"));
  EXPECT_THAT(refused("machine 1", ""), HasSubstr("first line"));
  EXPECT_FALSE(ParseMeasuredMachine("").ok());
  EXPECT_FALSE(ParseMeasuredMachine(text + std::string(5000, '\n')).ok());
}

// Whatever arrives is refused, or is a machine whose figures are sane.
TEST(MeasuredMachine, DamagedTextsDoNoHarm) {
  const std::string text = ToText(ExampleMachine());
  std::mt19937 rng(3);
  const auto below = [&](size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(rng); };
  int taken = 0;
  for (int i = 0; i < 1000; ++i) {
    std::string damaged = text;
    for (size_t times = 1 + below(4); times > 0; --times) {
      if (damaged.empty()) break;
      const size_t at = below(damaged.size());
      switch (below(4)) {
        case 0:
          damaged[at] = static_cast<char>(below(256));
          break;
        case 1:
          damaged.erase(at, 1 + below(30));
          break;
        case 2:
          damaged.insert(at, damaged.substr(below(damaged.size()), 1 + below(30)));
          break;
        default:
          damaged[at] = static_cast<char>('0' + below(10));
      }
    }
    const auto parsed = ParseMeasuredMachine(damaged);
    if (!parsed.ok()) {
      EXPECT_TRUE(absl::IsInvalidArgument(parsed.status()));
      EXPECT_EQ(parsed.status().message().find('\n'), std::string::npos) << parsed.status();
      continue;
    }
    ++taken;
    EXPECT_EQ(*ParseMeasuredMachine(ToText(*parsed)), *parsed);
    TargetInfo info;
    PutMeasured(*parsed, &info);
    for (const double figure : {info.core.operations_per_cycle, info.core.l2_bytes_per_cycle,
                                info.core.multiply_add_cycles, info.graph_speed.peak_gflops,
                                info.graph_speed.bytes_per_ns})
      EXPECT_TRUE(std::isfinite(figure) && figure > 0) << damaged;
    EXPECT_GE(info.L1Ways(), 1);
  }
  EXPECT_GT(taken, 20);   // digits changed
  EXPECT_LT(taken, 900);  // the rest was found
}

TEST(MeasuredMachine, DescribesTheTarget) {
  const MeasuredMachine machine = ExampleMachine();
  const auto described = [&](const char* text) {
    return *codegen::DescribeTarget(*codegen::ResolveTarget(*ParseTarget(text)), &machine);
  };
  const TargetInfo one = described("llvm -mcpu=sapphirerapids -triple=x86_64-linux-gnu");
  EXPECT_EQ(one.l1_bytes, 48 << 10);
  EXPECT_EQ(one.l2_bytes, 2 << 20);
  EXPECT_DOUBLE_EQ(one.core.operations_per_cycle, 160 / 2.5 / 32);  // of 16 lanes, twice each
  EXPECT_DOUBLE_EQ(one.core.loads_per_cycle, 320 / 2.5 / 64);
  EXPECT_DOUBLE_EQ(one.core.stores_per_cycle, 160 / 2.5 / 64);
  EXPECT_DOUBLE_EQ(one.core.gathered_per_cycle, 2);
  EXPECT_DOUBLE_EQ(one.core.multiply_add_cycles, 4);
  EXPECT_DOUBLE_EQ(one.core.l2_bytes_per_cycle, 24);
  EXPECT_DOUBLE_EQ(one.core.l3_bytes_per_cycle, 4);  // of memory
  EXPECT_DOUBLE_EQ(one.graph_speed.bytes_per_ns, 0.85 * 2 / (1.0 / 20 + 1.0 / 10));
  EXPECT_EQ(one.graph_speed.peak_gflops, 160);
  EXPECT_EQ(one.graph_speed.vector_bytes, 64);
  EXPECT_EQ(one.graph_speed.l3_bytes, 32 << 20);
  EXPECT_EQ(one.graph_speed.l2_read_bytes_per_ns, 60);
  EXPECT_EQ(one.graph_speed.l3_read_bytes_per_ns, 20);
  EXPECT_EQ(one.graph_speed.memory_read_bytes_per_ns, 10);
  // Cores share 16 GB/s, of which one alone takes 10.
  const TargetInfo two = described("llvm -mcpu=sapphirerapids -triple=x86_64-linux-gnu -threads=2");
  const TargetInfo four =
      described("llvm -mcpu=sapphirerapids -triple=x86_64-linux-gnu -threads=4");
  const TargetInfo more =
      described("llvm -mcpu=sapphirerapids -triple=x86_64-linux-gnu -threads=8");
  EXPECT_DOUBLE_EQ(two.core.l3_bytes_per_cycle, 3.2);
  EXPECT_DOUBLE_EQ(four.core.l3_bytes_per_cycle, 1.6);
  EXPECT_DOUBLE_EQ(more.core.l3_bytes_per_cycle, 1.6);
  EXPECT_DOUBLE_EQ(four.core.operations_per_cycle, one.core.operations_per_cycle);
  EXPECT_EQ(two.core.wake_ns, 1234.56);
  EXPECT_EQ(two.core.clock_ghz, 2.5);
  EXPECT_DOUBLE_EQ(one.graph_speed.call_ns, 12.5 + 40e3 / (0.6 * 60));
  // A plan is chosen for one core, and passes know no machine.
  EXPECT_EQ(four.graph_speed.bytes_per_ns, one.graph_speed.bytes_per_ns);
  EXPECT_EQ(one.graph_core.near_bytes, TargetInfo().graph_core.near_bytes);
  // GPUs have their table.
  const TargetInfo gpu = described("cuda -arch=sm_90");
  EXPECT_EQ(gpu.core.multiply_add_cycles, TargetInfo().core.multiply_add_cycles);
  EXPECT_EQ(gpu.l2_bytes, codegen::DescribeTarget(gpu.target)->l2_bytes);
}

}  // namespace
}  // namespace heddle::machine
