// A whole model for a GPU: compiled, written, read, and run with a driver without a GPU in place
// (tests/runtime/fake_cuda.h), which sees the launches that the file promises, in order.
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "client/zoo/zoo.h"
#include "compiler/codegen/cuda/cuda_backend.h"
#include "compiler/driver/compile.h"
#include "compiler/measure/compare.h"
#include "compiler/runtime/cuda/driver.h"
#include "compiler/runtime/executor.h"
#include "tests/codegen/cuda/host_code.h"
#include "tests/runtime/fake_cuda.h"

namespace heddle {
namespace {

struct Seen {
  std::string symbol;
  std::array<int64_t, 3> grid, block;
  bool operator==(const Seen&) const = default;
};

TEST(ModelCuda, SqueezenetCompilesAndLaunchesInOrder) {
  const auto nvrtc = codegen::CudaBackend().FindToolchain();
  if (!nvrtc.ok()) GTEST_SKIP() << nvrtc.status();
  const auto onnx = zoo::MakeZooModel("squeezenet", 1);
  ASSERT_TRUE(onnx.ok()) << onnx.status();
  CompileOptions compile;
  compile.choice = ScheduleChoice::kDefault;
  compile.model_name = "squeezenet";
  std::vector<std::string> warnings;
  const auto file =
      CompileModel(*onnx, {}, *ParseTarget("cuda -arch=sm_90"), {}, compile, &warnings);
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

// Run with a compiler in NVRTC's place (CMakeLists.txt; tests/codegen/cuda/fake_nvrtc.cc), whose
// code the driver runs on this CPU: what the file computes, in memory that is used again.
TEST(ModelOnHost, ComputesWhatTheModelSays) {
  const char* nvrtc = std::getenv("HEDDLE_NVRTC");
  if (nvrtc == nullptr || std::string(nvrtc).find("fake") == std::string::npos)
    GTEST_SKIP() << "the compiler makes code for GPUs";
  if (!heddle::testing::HasHostCompiler()) GTEST_SKIP() << "the C++ compiler of the build is gone";
  setenv(runtime::kCudaDriverVariable, HEDDLE_FAKE_CUDA, 1);
  const auto onnx = zoo::MakeZooModel("mlp", 1);
  ASSERT_TRUE(onnx.ok()) << onnx.status();
  CompileOptions compile;
  compile.choice = ScheduleChoice::kDefault;
  const auto file = CompileModel(*onnx, {}, *ParseTarget("cuda -arch=sm_90"), {}, compile);
  ASSERT_TRUE(file.ok()) << file.status();
  auto module = runtime::ParseModule(*file);
  ASSERT_TRUE(module.ok()) << module.status();
  const auto executor = runtime::Executor::Create(*std::move(module));
  ASSERT_TRUE(executor.ok()) << executor.status();
  const runtime::Manifest& manifest = (*executor)->manifest();
  std::vector<std::string> inputs;
  for (size_t i = 0; i < manifest.inputs.size(); ++i) {
    std::vector<float> values(static_cast<size_t>(manifest.inputs[i].SizeBytes()) / 4);
    for (size_t k = 0; k < values.size(); ++k)
      values[k] = static_cast<float>(k * 37 % 101) / 50 - 1;
    inputs.emplace_back(reinterpret_cast<const char*>(values.data()), values.size() * 4);
    std::memcpy((*executor)->InputData(static_cast<int>(i)), inputs[i].data(), inputs[i].size());
  }
  const auto expected = InterpretModel(*onnx, {}, inputs);
  ASSERT_TRUE(expected.ok()) << expected.status();
  for (int run = 0; run < 2; ++run) {
    ASSERT_TRUE((*executor)->Run().ok()) << (*executor)->status();
    ASSERT_EQ(manifest.outputs.size(), expected->size());
    for (size_t i = 0; i < expected->size(); ++i) {
      const auto* found = static_cast<const float*>((*executor)->OutputData(static_cast<int>(i)));
      ASSERT_EQ(static_cast<size_t>(manifest.outputs[i].SizeBytes()), (*expected)[i].size());
      for (size_t k = 0; k < (*expected)[i].size() / 4; ++k) {
        float value;
        std::memcpy(&value, (*expected)[i].data() + 4 * k, 4);
        ASSERT_TRUE(Close(found[k], value)) << k << ": " << found[k] << " " << value;
      }
    }
  }
}

}  // namespace
}  // namespace heddle
