// What is measured of this machine agrees with itself and with what kernels reach on it. No absolute
// times: the machine may be any, and busy.
#include "compiler/measure/measure_machine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "compiler/codegen/backend.h"
#include "compiler/driver/compile.h"
#include "compiler/measure/measure.h"
#include "compiler/runtime/machine_limits.h"

namespace heddle {
namespace {

using machine::MeasuredMachine;
using ::testing::HasSubstr;

const Target& Native() {
  static const auto& target = *new Target(*codegen::ResolveTarget(Target{}));
  return target;
}

absl::StatusOr<MeasuredMachine> Measure() {
  return MeasureMachine(Native(), {.cpus = {0}, .extensions = 10});
}

// Measured once for all tests.
const MeasuredMachine& Here() {
  static const auto& here = *new MeasuredMachine(Measure().value());
  return here;
}

// Time of the default schedule of a product of square matrices, best of several samples.
double GflopsOfProduct(int64_t n) {
  const std::string size = std::to_string(n), square = "f32[" + size + ", " + size + "]";
  const std::string workload =
      "program mm(A: " + square + ", B: " + square + ") -> (C: " + square + ") {\n  for i in " +
      size + " {\n    for j in " + size + " {\n      for k in " + size +
      " {\n        block c(a < " + size + " spatial = i, b < " + size + " spatial = j, d < " +
      size +
      " reduce = k) sum init 0.0 {\n          C[a, b] = (A[a, d] * B[d, b])\n        }\n      }\n" +
      "    }\n  }\n}\n";
  MeasureOptions options;
  options.cpus = {0};
  options.timing.flush_bytes = 0;
  options.timing.min_repeat = absl::Milliseconds(1);
  options.timing.repeats = 20;
  const auto bench = WorkloadBench::Create(workload, options);
  EXPECT_TRUE(bench.ok()) << bench.status();
  const auto artifact = BuildCandidate(workload, ScheduleChoice::kDefault, "", Native());
  EXPECT_TRUE(artifact.ok()) << artifact.status();
  if (!bench.ok() || !artifact.ok()) return 0;
  const auto measured = (*bench)->Run(*artifact);
  EXPECT_TRUE(measured.ok()) << measured.status();
  return measured.ok() ? 2.0 * static_cast<double>(n * n * n) / measured->timing.MinNs() : 0;
}

TEST(MeasureMachine, FiguresAgreeWithEachOther) {
  const MeasuredMachine& m = Here();
  SCOPED_TRACE(machine::ToText(m));
  EXPECT_EQ(CheckConsistent(m), absl::OkStatus());
  EXPECT_EQ(*machine::ParseMeasuredMachine(machine::ToText(m)), m);
  EXPECT_GE(1.1 * m.l1_gbps, m.l2_gbps);
  EXPECT_GE(1.1 * m.l2_gbps, m.l3_gbps);
  EXPECT_GE(1.1 * m.l3_gbps, m.memory_gbps);
  EXPECT_EQ(m.cores, 1);
  // What is known of all CPUs.
  const machine::TargetInfo info = *codegen::DescribeTarget(Native(), &m);
  EXPECT_GE(info.core.multiply_add_cycles, 2);
  EXPECT_LE(info.core.multiply_add_cycles, 8);
  EXPECT_GE(info.core.operations_per_cycle, 0.4);
  EXPECT_LE(info.core.operations_per_cycle, 4.4);
  EXPECT_GE(info.core.loads_per_cycle, 0.4);
  EXPECT_LE(info.core.loads_per_cycle, 4.4);
  EXPECT_LE(info.core.stores_per_cycle, 1.2 * info.core.loads_per_cycle);
  EXPECT_LT(info.core.gathered_per_cycle, info.core.loads_per_cycle * info.vector_bytes / 4);
}

// Neither a kernel of ours nor a loop that another compiler made computes faster than the peak.
TEST(MeasureMachine, NothingIsFasterThanThePeak) {
  const MeasuredMachine& m = Here();
  const double product = GflopsOfProduct(192), loop = runtime::MeasureFmaPeak(1);
  EXPECT_GT(product, 0);
  EXPECT_LE(product, 1.1 * m.gflops);
  EXPECT_LE(loop, 1.1 * m.gflops);
  EXPECT_LE(runtime::MeasureBandwidth(int64_t{256} << 20), 1.2 * m.memory_gbps);
}

// Clock and load change between two measurements, but not what a core does in a cycle.
TEST(MeasureMachine, CyclesAreMeasuredAgain) {
  const auto again = Measure();
  ASSERT_TRUE(again.ok()) << again.status();
  const machine::CoreSpeed a = codegen::DescribeTarget(Native(), &Here())->core,
                           b = codegen::DescribeTarget(Native(), &*again)->core;
  const auto close = [](double x, double y, const char* what) {
    EXPECT_LE(std::max(x, y), 1.5 * std::min(x, y)) << what;
  };
  close(a.operations_per_cycle, b.operations_per_cycle, "operations");
  close(a.multiply_add_cycles, b.multiply_add_cycles, "latency");
  close(a.loads_per_cycle, b.loads_per_cycle, "loads");
  close(a.stores_per_cycle, b.stores_per_cycle, "stores");
  close(a.gathered_per_cycle, b.gathered_per_cycle, "gathers");
  close(a.l2_bytes_per_cycle, b.l2_bytes_per_cycle, "second-level cache");
}

TEST(MeasureMachine, ContradictionsAreNamed) {
  const MeasuredMachine good = Here();
  const auto refused = [&](double MeasuredMachine::*figure, double value) {
    MeasuredMachine bad = good;
    bad.*figure = value;
    const absl::Status status = CheckConsistent(bad);
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
    return std::string(status.message());
  };
  EXPECT_THAT(refused(&MeasuredMachine::l1_gbps, good.l2_gbps / 2), HasSubstr("l2_gbps"));
  EXPECT_THAT(refused(&MeasuredMachine::memory_gbps, 2 * good.l3_gbps), HasSubstr("memory_gbps"));
  EXPECT_THAT(refused(&MeasuredMachine::all_gflops, 2 * good.gflops), HasSubstr("all_gflops"));
  EXPECT_THAT(refused(&MeasuredMachine::multiply_add_ns, 0.2 / good.clock_ghz),
              HasSubstr("clock_ghz"));
}

TEST(MeasureMachine, OnlyThisMachinesCpuIsMeasured) {
  for (const char* other :
       {"cuda -arch=sm_90", "llvm -mcpu=neoverse-n1 -triple=aarch64-linux-gnu"}) {
    const auto measured = MeasureMachine(*ParseTarget(other), {.cpus = {0}});
    EXPECT_EQ(measured.status().code(), absl::StatusCode::kUnimplemented) << other;
  }
}

}  // namespace
}  // namespace heddle
