#include "compiler/measure/measure.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "compiler/codegen/llvm/llvm_backend.h"
#include "compiler/driver/compile.h"
#include "compiler/ir/arithmetic.h"
#include "compiler/ir/text.h"
#include "compiler/ir/visit.h"
#include "compiler/measure/check.h"
#include "compiler/measure/data.h"

namespace heddle {
namespace {

using ::testing::HasSubstr;

// y[i] = sum over r of a[i, r] * b[r]
constexpr char kWorkload[] = R"(program dot(a: f32[37, 64], b: f32[64]) -> (y: f32[37]) {
  for i in 37 {
    for r in 64 {
      block y_block(vi < 37 spatial = i, vr < 64 reduce = r) sum init 0.0 {
        y[vi] = (a[vi, vr] * b[vr])
      }
    }
  }
}
)";

MeasureOptions Quick() {
  MeasureOptions options;
  options.timing.repeats = 3;
  options.timing.min_repeat = absl::Microseconds(200);
  return options;
}

Target Native(int threads = 1) {
  Target target;
  target.threads = threads;
  return codegen::ResolveTarget(target).value();
}

// Machine code of a lowered program with the workload's arguments, right or wrong.
codegen::Artifact Kernel(const std::string& body) {
  const auto program =
      ir::Parse("program kernel(a: f32[37, 64], b: f32[64]) -> (y: f32[37]) {" + body + "}");
  EXPECT_TRUE(program.ok()) << program.status();
  const auto artifact = codegen::CompileLlvm({*program}, Native());
  EXPECT_TRUE(artifact.ok()) << artifact.status();
  return *artifact;
}

std::string RunError(WorkloadBench& bench, const codegen::Artifact& artifact) {
  return std::string(bench.Run(artifact).status().message());
}

class MeasureTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto bench = WorkloadBench::Create(kWorkload, Quick());
    ASSERT_TRUE(bench.ok()) << bench.status();
    bench_ = *std::move(bench);
  }
  std::unique_ptr<WorkloadBench> bench_;
};

TEST_F(MeasureTest, RightKernelsAreTimed) {
  for (ScheduleChoice choice : {ScheduleChoice::kNaive, ScheduleChoice::kDefault}) {
    const auto artifact = BuildCandidate(kWorkload, choice, "", Native());
    ASSERT_TRUE(artifact.ok()) << artifact.status();
    const auto result = bench_->Run(*artifact);
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->timing.samples_ns.size(), 3u);
    EXPECT_GT(result->timing.MedianNs(), 0);
    EXPECT_LT(result->max_error, 1e-4);
  }
}

// Such a kernel is called before each timed call, and its constants, packed ones among them, are read.
TEST(WarmKernels, AreCheckedAndTimedLikeOthers) {
  const std::string workload =
      R"(program look_timed_warm(x: f32[16, 4], t: i64[8] const, c: f32[8] const, w: f32[8, 16] const) -> (y: f32[4, 16]) {
  for i in 4 {
    for j in 16 {
      for k in 8 {
        block y_block(vi < 4 spatial = i, vj < 16 spatial = j, vk < 8 reduce = k) sum init 0.0 {
          y[vi, vj] = (select((c[vk] <= x[max(0, min(15, t[vk])), vi]), 1.0, 2.0) * w[vk, vj])
        }
      }
    }
  }
}
)";
  ASSERT_TRUE(ir::IsTimedWarm(*ir::Parse(workload)));
  const auto bench = WorkloadBench::Create(workload, Quick());
  ASSERT_TRUE(bench.ok()) << bench.status();
  for (ScheduleChoice choice : {ScheduleChoice::kNaive, ScheduleChoice::kDefault}) {
    const auto artifact = BuildCandidate(workload, choice, "", Native());
    ASSERT_TRUE(artifact.ok()) << artifact.status();
    const auto result = (*bench)->Run(*artifact);
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->timing.samples_ns.size(), 3u);
    EXPECT_GT(result->timing.MedianNs(), 0);
  }
}

TEST_F(MeasureTest, ACandidateFarSlowerThanOneBeforeItIsTimedShortly) {
  const codegen::Artifact slow = Kernel(R"(
    for i in 37 { y[i] = 0.0 for r in 64 { y[i] = (y[i] + (a[i, r] * b[r])) } }
    for again in 200000 { for i in 37 { y[i] = select(isnan(y[i]), 0.0, y[i]) } })");
  const codegen::Artifact fast = Kernel(R"(
    for i in 37 { y[i] = 0.0 for r in 64 { y[i] = (y[i] + (a[i, r] * b[r])) } })");
  const auto samples = [&](const codegen::Artifact& artifact) {
    const auto result = bench_->Run(artifact);
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? result->timing.samples_ns.size() : 0;
  };
  EXPECT_EQ(samples(slow), 3u) << "it has no rival yet";
  EXPECT_EQ(samples(fast), 3u);
  EXPECT_LT(samples(slow), 3u);
  EXPECT_EQ(samples(fast), 3u);
}

TEST_F(MeasureTest, WrongValuesAreFound) {
  const auto artifact = Kernel(R"(
    for i in 37 { y[i] = 0.0 for r in 64 { y[i] = (y[i] + (a[i, r] * a[i, r])) } })");
  EXPECT_THAT(RunError(*bench_, artifact),
              HasSubstr("wrong result: output 0 ('y'), element [0] is"));
}

TEST_F(MeasureTest, AnElementThatIsNotWrittenIsFound) {
  // All but element 20, which is no corner.
  const auto artifact = Kernel(R"(
    for i in 37 { if (i != 20) { y[i] = 0.0 for r in 64 { y[i] = (y[i] + (a[i, r] * b[r])) } } })");
  EXPECT_EQ(RunError(*bench_, artifact),
            "wrong result: output 0 ('y'), element [20] is not written");
}

TEST_F(MeasureTest, AMissingInitialisationIsFound) {
  const auto artifact = Kernel("for i in 37 { for r in 64 { y[i] = (y[i] + (a[i, r] * b[r])) } }");
  EXPECT_THAT(RunError(*bench_, artifact), HasSubstr("wrong result"));
}

TEST_F(MeasureTest, WhatSurvivesInAnOutputIsFound) {
  // Right only when y holds a NaN before: the first run.
  const auto artifact = Kernel(R"(
    for i in 37 {
      y[i] = select(isnan(y[i]), 0.0, y[i])
      for r in 64 { y[i] = (y[i] + (a[i, r] * b[r])) }
    })");
  EXPECT_THAT(RunError(*bench_, artifact), HasSubstr("wrong result in the second run"));
}

TEST_F(MeasureTest, AnArgumentThatNobodyHasIsAnError) {
  codegen::Artifact artifact = *BuildCandidate(kWorkload, ScheduleChoice::kNaive, "", Native());
  artifact.kernels[0].arguments[1].name = "stranger";
  EXPECT_THAT(RunError(*bench_, artifact), HasSubstr("takes 'stranger', which nobody has"));
}

TEST_F(MeasureTest, CodeThatDoesNotLoadIsAnError) {
  codegen::Artifact artifact = *BuildCandidate(kWorkload, ScheduleChoice::kNaive, "", Native());
  artifact.kernels[0].symbol = "other";
  EXPECT_THAT(RunError(*bench_, artifact), HasSubstr("no kernel 'other'"));
  artifact.shared_object.resize(100);
  EXPECT_EQ(bench_->Run(artifact).status().code(), absl::StatusCode::kInvalidArgument);
  artifact.kernels.clear();
  EXPECT_EQ(bench_->Run(artifact).status().code(), absl::StatusCode::kInvalidArgument);
}

// Few points, all of them corners, so that what lies between is found by whole outputs only.
class WholeOutputs : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const std::string workload = absl::StrCat("program p(", Arguments(), R"() {
  for i in 4000 {
    block y_block(v < 4000 spatial = i) {
      y[v] = (x[v] + x[v])
    }
  }
}
)");
    MeasureOptions options = Quick();
    options.check_points = 2;
    auto bench = WorkloadBench::Create(workload, options);
    ASSERT_TRUE(bench.ok()) << bench.status();
    bench_ = *std::move(bench);
  }
  std::string Arguments() const {
    return absl::StrCat("x: ", GetParam(), "[4000]) -> (y: ", GetParam(), "[4000]");
  }
  absl::StatusOr<Measurement> Run(const std::string& body) {
    const auto program = ir::Parse(absl::StrCat("program k(", Arguments(), ") {", body, "}"));
    EXPECT_TRUE(program.ok()) << program.status();
    const auto artifact = codegen::CompileLlvm({*program}, Native());
    EXPECT_TRUE(artifact.ok()) << artifact.status();
    return bench_->Run(*artifact);
  }
  std::unique_ptr<WorkloadBench> bench_;
};

constexpr char kRight[] = "for i in 4000 { y[i] = (x[i] + x[i]) }";
constexpr char kWrongInTheMiddle[] = R"(for i in 4000 {
  y[i] = (x[i] + x[i]) if (i == 2000) { y[i] = ((x[i] + x[i]) + x[i]) } })";
constexpr char kOneNotWritten[] = "for i in 4000 { if (i != 2000) { y[i] = (x[i] + x[i]) } }";

TEST_P(WholeOutputs, AMistakeBetweenThePointsIsFound) {
  ASSERT_TRUE(Run(kRight).ok());
  EXPECT_THAT(std::string(Run(kWrongInTheMiddle).status().message()),
              HasSubstr("wrong result: output 0 ('y'), element [2000] is"));
  const auto again = Run(kRight);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->references_replaced, 0);
}

TEST_P(WholeOutputs, AWrongFirstCandidateDoesNotCondemnTheNext) {
  ASSERT_TRUE(Run(kWrongInTheMiddle).ok()) << "nothing to compare it with but the points";
  const auto right = Run(kRight);
  ASSERT_TRUE(right.ok()) << right.status();
  EXPECT_EQ(right->references_replaced, 1);
  EXPECT_FALSE(Run(kWrongInTheMiddle).ok());
}

TEST_P(WholeOutputs, AnElementThatIsNotWrittenIsFoundAtOnce) {
  EXPECT_THAT(std::string(Run(kOneNotWritten).status().message()), HasSubstr("element [2000]"));
  EXPECT_TRUE(Run(kRight).ok());
}

INSTANTIATE_TEST_SUITE_P(Types, WholeOutputs, ::testing::Values("f32", "f64", "i8", "i32", "i64"));

TEST(MeasureCreateTest, MalformedWorkloadsAreErrors) {
  EXPECT_EQ(WorkloadBench::Create("", {}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(WorkloadBench::Create("program p() -> () {}", {}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(MeasureCreateTest, EveryTypeIsMeasured) {
  for (const std::string dtype : {"i8", "u8", "i32", "i64", "f32", "f64"}) {
    const std::string workload = "program p(x: " + dtype + "[5, 3]) -> (y: " + dtype + R"([5, 3]) {
  for i in 5 {
    for j in 3 {
      block b(vi < 5 spatial = i, vj < 3 spatial = j) {
        y[vi, vj] = (x[vi, vj] + x[vi, vj])
      }
    }
  }
}
)";
    auto bench = WorkloadBench::Create(workload, Quick());
    ASSERT_TRUE(bench.ok()) << bench.status();
    const auto artifact = BuildCandidate(workload, ScheduleChoice::kNaive, "", Native());
    ASSERT_TRUE(artifact.ok()) << artifact.status();
    EXPECT_TRUE((*bench)->Run(*artifact).ok()) << dtype;
  }
}

TEST(MeasureCreateTest, ThreadsAndPinning) {
  MeasureOptions options = Quick();
  options.threads = 2;
  options.cpus = {0, 1};
  auto bench = WorkloadBench::Create(kWorkload, options);
  ASSERT_TRUE(bench.ok());
  const auto artifact = BuildCandidate(kWorkload, ScheduleChoice::kDefault, "", Native(2));
  ASSERT_TRUE(artifact.ok()) << artifact.status();
  EXPECT_TRUE((*bench)->Run(*artifact).ok());
}

// In a model, a kernel's inputs are newer than what lies where it writes, and other kernels have used the same workspace. Its
// weights are cold.
TEST(MeasureDataTest, TheWorkspaceIsWarmAndInputsAreUsedLast) {
  const auto program =
      ir::Parse(R"(program p(a: f32[4], w: f32[4] const, b: f32[4]) -> (y: f32[4], z: f32[4]) {
  for i in 4 { block y_block(v < 4 spatial = i) { y[v] = (a[v] * w[v]) } }
  for j in 4 { block z_block(u < 4 spatial = j) { z[u] = b[u] } }
})");
  ASSERT_TRUE(program.ok()) << program.status();
  internal::MeasureData data(*program);
  ASSERT_TRUE(data.Prepare(1, 8).ok());
  const auto names = [&](const runtime::AlignedBuffer& workspace) {
    std::string text;
    for (const internal::Memory& memory : internal::WarmByAge(data, workspace)) {
      if (memory.data == workspace.data()) absl::StrAppend(&text, "workspace ", memory.bytes, " ");
      for (const auto& [name, known] : data.memory()) {
        if (memory.data == known.data) absl::StrAppend(&text, name, " ", memory.bytes, " ");
      }
    }
    return text;
  };
  EXPECT_EQ(names(runtime::AlignedBuffer::Allocate(100)), "workspace 100 y 16 z 16 a 16 b 16 ");
  EXPECT_EQ(names(runtime::AlignedBuffer::Allocate(0)), "y 16 z 16 a 16 b 16 ");
}

// y = a * 3 + c, where the product is stored before c takes all of it away: rounded to its other
// neighbour, it leaves a unit of its last place.
TEST(ResultCheckerTest, SixteenBitFloatsOnTheWayMayRoundToNeighbours) {
  const auto program = ir::Parse(R"(program p(a: f16[4], c: f16[4]) -> (y: f16[4]) {
  alloc s: f16[4] global {
    for i in 4 { block product(v < 4 spatial = i) { s[v] = f16((f32(a[v]) * 3.0)) } }
    for j in 4 { block rest(w < 4 spatial = j) { y[w] = f16((f32(s[w]) + f32(c[w]))) } }
  }
})");
  ASSERT_TRUE(program.ok()) << program.status();
  const auto half = [](float value) { return ir::HalfBits(value, ir::DType::kF16); };
  std::vector<uint16_t> a(4, half(333.5)), c(4, half(-1000.5));
  SplitMix random(1);
  internal::ResultChecker checker;
  const absl::Status ready = checker.Prepare(
      *program, {{ir::DType::kF16, {4}, a.data()}, {ir::DType::kF16, {4}, c.data()}}, 8, random);
  ASSERT_TRUE(ready.ok()) << ready;
  const auto check = [&](float found) {
    std::vector<uint16_t> y(4, half(found));
    double error = 0;
    return checker.Check({y.data()}, "", runtime::kDirectTolerance, &error);
  };
  for (const float found : {0.0f, 0.5f, -0.5f}) EXPECT_TRUE(check(found).ok()) << check(found);
  EXPECT_TRUE(absl::IsDataLoss(check(1.5))) << check(1.5);
}

}  // namespace
}  // namespace heddle
