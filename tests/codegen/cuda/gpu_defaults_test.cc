// The schedule that a kernel gets without measurement fits into the limits of every GPU: nothing else
// is left where nothing was tuned. Checked for all tasks of all models of the zoo, without a compiler.
#include <gtest/gtest.h>

#include <string>

#include "client/zoo/zoo.h"
#include "compiler/codegen/cuda/cuda_backend.h"
#include "compiler/driver/compile.h"
#include "compiler/driver/schedule_and_lower.h"
#include "compiler/ir/workload.h"
#include "tests/codegen/cuda/gpu_testing.h"

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

INSTANTIATE_TEST_SUITE_P(Zoo, GpuDefaults, ::testing::ValuesIn(zoo::ZooNames()),
                         [](const auto& model) { return model.param; });

}  // namespace
}  // namespace heddle::testing
