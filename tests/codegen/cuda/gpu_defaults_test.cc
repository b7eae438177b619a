// The schedule that a kernel gets without measurement fits into the limits of every GPU: nothing else
// is left where nothing was tuned. Checked for all tasks of all models of the zoo, without a compiler.
#include <gtest/gtest.h>

#include <string>

#include "client/zoo/zoo.h"
#include "compiler/codegen/cuda/cuda_backend.h"
#include "compiler/driver/compile.h"
#include "compiler/driver/schedule_and_lower.h"
#include "compiler/ir/text.h"
#include "compiler/ir/workload.h"
#include "compiler/runtime/numerics.h"
#include "tests/codegen/cuda/gpu_testing.h"
#include "tests/schedule/workloads.h"

namespace heddle::testing {
namespace {

class GpuDefaults : public ::testing::TestWithParam<std::string> {};

TEST_P(GpuDefaults, FitIntoTheLimits) {
  const auto onnx = zoo::MakeZooModel(GetParam(), 1);
  ASSERT_TRUE(onnx.ok()) << onnx.status();
  const auto fused = PrepareModel(*onnx, {}, GpuTarget().target);
  ASSERT_TRUE(fused.ok()) << fused.status();
  int checked = 0;
  for (const graph::Task& task : graph::ExtractTasks(*fused)) {
    const auto naive = ir::ParseWorkload(task.workload);
    ASSERT_TRUE(naive.ok()) << naive.status();
    for (const char* arch : {"sm_80", "sm_86", "sm_90"}) {
      machine::TargetInfo target = GpuTarget(arch);
      for (const bool tf32 : {false, true}) {
        target.target.tf32 = tf32;
        const auto lowered =
            internal::ScheduleAndLower(*naive, ScheduleChoice::kDefault, "", target, "kernel");
        ASSERT_TRUE(lowered.ok()) << task.label << ", " << arch << ": " << lowered.status();
        const absl::Status fits =
            codegen::CudaBackend().CheckLimits(lowered->kernel, target.target);
        EXPECT_TRUE(fits.ok()) << task.label << (tf32 ? ", tf32: " : ": ") << fits;
        ++checked;
      }
    }
  }
  EXPECT_GT(checked, 0);
}

// A product of square matrices with sums of 4096 terms, of this type.
ir::Program LongProduct(const std::string& type) {
  const std::string matrix = type + "[4096, 4096]";
  const std::string product =
      type == "f32" ? "(a[x, q] * b[q, z])" : "(f32(a[x, q]) * f32(b[q, z]))";
  return ir::Parse("program p(a: " + matrix + ", b: " + matrix +
                   ") -> (y: f32[4096, 4096]) { for i in 4096 { for j in 4096 { for r in 4096 { "
                   "block dot(x < 4096 spatial = i, z < 4096 spatial = j, q < 4096 reduce = r) "
                   "sum init 0.0 { y[x, z] = " +
                   product + " } } } } }")
      .value();
}

// Only tensor cores cut sums off. What rounds each term keeps the tight tolerance, however long its sums.
TEST(GpuNumerics, OnlySumsOnTensorCoresMayBeOffByMore) {
  const auto allowed = [](const std::string& type, ScheduleChoice choice,
                          const machine::TargetInfo& target) {
    const auto lowered =
        internal::ScheduleAndLower(LongProduct(type), choice, "", target, "kernel");
    EXPECT_TRUE(lowered.ok()) << lowered.status();
    return lowered.ok() ? lowered->numerics.Allowed().absolute : -1;
  };
  const double tight = runtime::kDirectTolerance.absolute;
  const double loose = 1e-5 * 64;  // sqrt(4096)
  EXPECT_EQ(allowed("f16", ScheduleChoice::kDefault, GpuTarget()), loose);
  EXPECT_EQ(allowed("f32", ScheduleChoice::kDefault, GpuTarget()), tight);
  const machine::TargetInfo cpu = schedule::Wide();
  for (const char* type : {"f16", "bf16", "f32"})
    EXPECT_EQ(allowed(type, ScheduleChoice::kDefault, cpu), tight) << type;
}

INSTANTIATE_TEST_SUITE_P(Zoo, GpuDefaults, ::testing::ValuesIn(zoo::ZooNames()),
                         [](const auto& model) { return model.param; });

}  // namespace
}  // namespace heddle::testing
