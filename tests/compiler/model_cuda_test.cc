// A whole model for a GPU: compiled, written, read, and run with a driver without a GPU in place
// (tests/runtime/fake_cuda.h), which sees the launches that the file promises, in order.
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <string>
#include <vector>

#include "compiler/codegen/cuda_backend.h"
#include "compiler/compile.h"
#include "compiler/graph/zoo.h"
#include "compiler/runtime/cuda_driver.h"
#include "compiler/runtime/executor.h"
#include "tests/runtime/fake_cuda.h"

namespace heddle {
namespace {

struct Seen {
  std::string symbol;
  std::array<int64_t, 3> grid, block;
  bool operator==(const Seen&) const = default;
};

TEST(ModelCuda, SqueezenetCompilesAndLaunchesInOrder) {
  if (const absl::Status nvrtc = codegen::FindNvrtc(); !nvrtc.ok()) GTEST_SKIP() << nvrtc;
  const auto onnx = graph::MakeZooModel("squeezenet", 1);
  ASSERT_TRUE(onnx.ok()) << onnx.status();
  CompileOptions compile;
  compile.choice = ScheduleChoice::kDefault;
  compile.model_name = "squeezenet";
  std::vector<std::string> warnings;
  const auto file =
      CompileModel(*onnx, {}, *ir::ParseTarget("cuda -arch=sm_90"), {}, compile, &warnings);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_TRUE(warnings.empty()) << warnings[0];
  const auto module = runtime::ParseModule(*file);
  ASSERT_TRUE(module.ok()) << module.status();
  const runtime::Manifest& manifest = module->manifest;
  EXPECT_EQ(manifest.target, "cuda -arch=sm_90");
  EXPECT_EQ(manifest.model, "squeezenet");
  std::vector<Seen> promised;
  for (const auto& call : manifest.calls) {
    const runtime::KernelSpec& kernel = manifest.kernels[static_cast<size_t>(call.kernel)];
    EXPECT_FALSE(kernel.launches.empty()) << kernel.symbol;
    for (const runtime::GpuLaunch& launch : kernel.launches) {
      EXPECT_GT(launch.registers, 0) << launch.symbol;
      promised.push_back({launch.symbol,
                          {launch.grid[0], launch.grid[1], launch.grid[2]},
                          {launch.block[0], launch.block[1], launch.block[2]}});
    }
  }
  EXPECT_GT(promised.size(), 20u);

  setenv(runtime::kCudaDriverVariable, HEDDLE_FAKE_CUDA, 1);
  test::FakeCudaState& fake = test::FakeCuda(HEDDLE_FAKE_CUDA);
  fake = {};
  std::vector<Seen> launched;
  fake.on_launch = [&](const test::FakeLaunch& launch) {
    launched.push_back({launch.symbol,
                        {launch.grid[0], launch.grid[1], launch.grid[2]},
                        {launch.block[0], launch.block[1], launch.block[2]}});
  };
  {
    const auto executor = runtime::Executor::Create(*module);
    ASSERT_TRUE(executor.ok()) << executor.status();
    for (int run = 0; run < 2; ++run) {
      launched.clear();
      ASSERT_TRUE((*executor)->Run().ok()) << (*executor)->status();
      ASSERT_EQ(launched.size(), promised.size());
      for (size_t i = 0; i < launched.size(); ++i) {
        EXPECT_EQ(launched[i], promised[i]) << i << ": " << launched[i].symbol;
      }
    }
  }
  EXPECT_EQ(fake.Leaks(), "");
}

}  // namespace
}  // namespace heddle
