// Whole modules on a GPU, with a driver without one in place (fake_cuda.h): what is copied,
// launched and kept, and what a file may not make it do.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "compiler/runtime/cuda/driver.h"
#include "compiler/runtime/executor.h"
#include "tests/runtime/fake_cuda.h"

namespace heddle::runtime {
namespace {

using ::testing::HasSubstr;

constexpr int kLength = 16;
constexpr int64_t kBytes = kLength * sizeof(float);

// y = (x + p) * 2, by way of the arena and the workspace.
Module MakeModule() {
  Module module;
  Manifest& m = module.manifest;
  m.producer = "test";
  m.model = "two kernels";
  m.target = "cuda -arch=sm_90";
  m.inputs = {{"x", "f32", {kLength}}};
  m.outputs = {{"y", "f32", {kLength}}};
  m.arena_bytes = 128;
  m.workspace_bytes = 512;
  KernelSpec add, twice;
  add.symbol = "add";
  add.launches = {{.symbol = "add_0", .grid = {2, 1, 1}, .arguments = {{0, 0}, {1, 0}, {2, 0}}}};
  twice.symbol = "twice";
  twice.workspace_bytes = 512;
  twice.launches = {{.symbol = "copy_0", .arguments = {{0, 0}, {-1, 256}}},
                    {.symbol = "twice_1", .arguments = {{-1, 256}, {1, 0}}}};
  m.kernels = {add, twice};
  m.calls = {
      {0, {{Place::kInput, 0, kBytes}, {Place::kParam, 64, kBytes}, {Place::kArena, 64, kBytes}}},
      {1, {{Place::kArena, 64, kBytes}, {Place::kOutput, 0, kBytes}}}};
  module.code = test::FakeCubin();
  std::string params(128, '\0');
  for (int i = 0; i < kLength; ++i) {
    const float value = static_cast<float>(i) / 4;
    std::memcpy(params.data() + 64 + i * sizeof(float), &value, sizeof(float));
  }
  module.params = SharedBytes::Of(std::move(params));
  return module;
}

void RunKernel(const test::FakeLaunch& launch) {
  const auto data = [&](int i) {
    return reinterpret_cast<float*>(*static_cast<CuPointer*>(launch.arguments[i]));
  };
  for (int i = 0; i < kLength; ++i) {
    if (launch.symbol == "add_0") data(2)[i] = data(0)[i] + data(1)[i];
    if (launch.symbol == "copy_0") data(1)[i] = data(0)[i];
    if (launch.symbol == "twice_1") data(1)[i] = 2 * data(0)[i];
  }
}

class CudaExecutorTest : public ::testing::Test {
 protected:
  void SetUp() override {
    setenv(kCudaDriverVariable, HEDDLE_FAKE_CUDA, 1);
    fake_ = &test::FakeCuda(HEDDLE_FAKE_CUDA);
    *fake_ = {};
    fake_->on_launch = RunKernel;
  }
  void TearDown() override { EXPECT_EQ(fake_->sticky == 0 ? fake_->Leaks() : "", ""); }
  test::FakeCudaState* fake_ = nullptr;
};

TEST_F(CudaExecutorTest, RunsAFileAndAllocatesNothingAfterwards) {
  const auto module = ParseModule(SerializeModule(MakeModule()));
  ASSERT_TRUE(module.ok()) << module.status();
  EXPECT_EQ(module->manifest.kernels[1].launches, MakeModule().manifest.kernels[1].launches);
  auto executor = Executor::Create(*module);
  ASSERT_TRUE(executor.ok()) << executor.status();
  auto* x = static_cast<float*>((*executor)->InputData(0));
  const auto* y = static_cast<const float*>((*executor)->OutputData(0));
  for (int run = 0; run < 3; ++run) {
    for (int i = 0; i < kLength; ++i) x[i] = static_cast<float>(run * i);
    fake_->calls.clear();
    ASSERT_TRUE((*executor)->Run().ok());
    for (int i = 0; i < kLength; ++i) {
      ASSERT_EQ(y[i], 2 * (static_cast<float>(run * i) + static_cast<float>(i) / 4)) << i;
    }
    // The second run records a graph, and the third only launches it.
    std::vector<std::string> work = {"cuMemcpyHtoDAsync_v2", "cuLaunchKernel", "cuLaunchKernel",
                                     "cuLaunchKernel", "cuMemcpyDtoHAsync_v2"};
    std::vector<std::string> expected = {"cuCtxSetCurrent"};
    if (run == 1) expected.push_back("cuStreamBeginCapture_v2");
    if (run < 2) expected.insert(expected.end(), work.begin(), work.end());
    if (run == 1) {
      expected.insert(expected.end(),
                      {"cuStreamEndCapture", "cuGraphInstantiateWithFlags", "cuGraphDestroy"});
    }
    if (run > 0) expected.push_back("cuGraphLaunch");
    expected.push_back("cuStreamSynchronize");
    EXPECT_EQ(fake_->calls, expected);
  }
  fake_->launch_ns = [](const test::FakeLaunch& l) { return l.symbol == "add_0" ? 5e3 : 7e3; };
  const std::vector<double> times = (*executor)->ProfileNs(3);
  ASSERT_EQ(times.size(), 2u);
  EXPECT_NEAR(times[0], 5e3, 5);
  EXPECT_NEAR(times[1], 14e3, 5);
}

// Wherever recording fails, runs go on as without it, and nobody is told; it is not tried again.
TEST_F(CudaExecutorTest, WithoutGraphsRunsLaunchTheirKernels) {
  for (const char* call : {"cuStreamBeginCapture_v2", "cuMemcpyHtoDAsync_v2", "cuLaunchKernel",
                           "cuStreamEndCapture", "cuGraphInstantiateWithFlags"}) {
    auto executor = Executor::Create(MakeModule());
    ASSERT_TRUE(executor.ok()) << executor.status();
    auto* x = static_cast<float*>((*executor)->InputData(0));
    const auto* y = static_cast<const float*>((*executor)->OutputData(0));
    for (int run = 0; run < 4; ++run) {
      std::fill_n(x, kLength, static_cast<float>(run));
      if (run == 1) fake_->failures[call] = {1, 900};
      fake_->calls.clear();
      ASSERT_TRUE((*executor)->Run().ok()) << call << ": " << (*executor)->status();
      EXPECT_TRUE(fake_->failures.empty()) << call << " was not made";
      EXPECT_EQ(y[1], 2 * (static_cast<float>(run) + 0.25F)) << call << ", run " << run;
      EXPECT_EQ(fake_->Count("cuGraphLaunch"), 0) << call;
      EXPECT_EQ(fake_->Count("cuStreamBeginCapture_v2"), run == 1 ? 1 : 0) << call;
    }
  }
  EXPECT_EQ(fake_->Leaks(), "");
}

TEST_F(CudaExecutorTest, AGraphThatFailsIsTold) {
  auto executor = Executor::Create(MakeModule());
  ASSERT_TRUE(executor.ok());
  for (int run = 0; run < 2; ++run) ASSERT_TRUE((*executor)->Run().ok());
  fake_->failures["cuGraphLaunch"] = {1, 700};
  EXPECT_TRUE(absl::IsAborted((*executor)->Run()));
}

TEST_F(CudaExecutorTest, TensorsAreCopied) {
  auto executor = Executor::Create(MakeModule());
  ASSERT_TRUE(executor.ok()) << executor.status();
  alignas(64) float memory[kLength];
  EXPECT_TRUE(absl::IsFailedPrecondition((*executor)->BindInput(0, memory)));
  EXPECT_TRUE(absl::IsFailedPrecondition((*executor)->BindOutput(0, memory)));
  EXPECT_TRUE((*executor)->BindInput(0, nullptr).ok());
  EXPECT_NE((*executor)->OutputData(0), memory);
}

TEST_F(CudaExecutorTest, ASmallerBlockCopiesOnlyItsRows) {
  constexpr int kRows = kLength / 2;
  Module module = MakeModule();
  RowBlock block{kRows, module.manifest.calls};
  block.calls[0].buffers[0].bytes /= 2;
  block.calls[1].buffers[1].bytes /= 2;
  module.manifest.smaller_blocks = {block};
  module.manifest.independent_rows = true;
  auto executor = Executor::Create(module);
  ASSERT_TRUE(executor.ok()) << executor.status();
  float x[kLength], y[kLength] = {};
  std::fill_n(x, kLength, 3.0F);
  const void* inputs[] = {x};
  void* outputs[] = {y};
  ASSERT_TRUE((*executor)->RunRows(kRows, inputs, outputs).ok());
  const auto* there = static_cast<const float*>((*executor)->OutputData(0));
  for (int i = 0; i < kLength; ++i) {
    const float wanted = i < kRows ? 2 * (3 + static_cast<float>(i) / 4) : 0;
    EXPECT_EQ(y[i], wanted) << i;
    EXPECT_EQ(there[i], wanted) << i;
  }
  EXPECT_EQ((*executor)->ProfileNs(2, 1).size(), 2u);
}

TEST_F(CudaExecutorTest, AModuleForAnotherGpuSaysSo) {
  for (const char* arch : {"sm_80", "sm_91", "sm_100", "sm_89a", "x"}) {
    Module module = MakeModule();
    module.manifest.target = std::string("cuda -arch=") + arch;
    const auto executor = Executor::Create(module);
    EXPECT_TRUE(absl::IsFailedPrecondition(executor.status())) << arch;
    EXPECT_THAT(std::string(executor.status().message()),
                HasSubstr("this GPU (Fake GPU (12 GB)) is sm_90: compile it for"));
  }
  Module module = MakeModule();
  module.manifest.target = "cuda -arch=sm_90a";
  EXPECT_TRUE(Executor::Create(module).ok());
  // A later one of its generation; what follows the architecture is no part of it.
  fake_->minor = 1;
  EXPECT_TRUE(absl::IsFailedPrecondition(Executor::Create(module).status()));
  module.manifest.target = "cuda -arch=sm_90a -tf32=on";
  EXPECT_TRUE(absl::IsFailedPrecondition(Executor::Create(module).status()));
  for (const char* target : {"cuda -arch=sm_90", "cuda -arch=sm_90 -tf32=on"}) {
    module.manifest.target = target;
    const auto executor = Executor::Create(module);
    EXPECT_TRUE(executor.ok()) << executor.status();
  }
}

TEST_F(CudaExecutorTest, AFileMustNotReachBeyondItsMemory) {
  const auto refused = [](void (*spoil)(Module&)) {
    Module module = MakeModule();
    spoil(module);
    return absl::IsInvalidArgument(ParseModule(SerializeModule(module)).status());
  };
  auto launch = [](Module& m) -> GpuLaunch& { return m.manifest.kernels[1].launches[0]; };
  static auto* at = &launch;
  EXPECT_TRUE(refused([](Module& m) { (*at)(m).arguments[0].buffer = 2; }));
  EXPECT_TRUE(refused([](Module& m) { (*at)(m).arguments[1].workspace_offset = 1024; }));
  EXPECT_TRUE(refused([](Module& m) { (*at)(m).grid[1] = 0; }));
  EXPECT_TRUE(refused([](Module& m) { m.manifest.kernels[0].launches.clear(); }));
  EXPECT_TRUE(refused([](Module& m) { m.manifest.target = "llvm -mcpu=x"; }));
  EXPECT_TRUE(refused([](Module& m) { m.manifest.calls[0].buffers.pop_back(); }));
}

TEST_F(CudaExecutorTest, AFailureIsToldAndKept) {
  auto executor = Executor::Create(MakeModule());
  ASSERT_TRUE(executor.ok());
  fake_->failures["cuStreamSynchronize"] = {1, 700};
  EXPECT_TRUE(absl::IsAborted((*executor)->Run()));
  EXPECT_TRUE((*executor)->ProfileNs(1).empty());
  EXPECT_THAT(std::string((*executor)->status().message()), HasSubstr("ILLEGAL_ADDRESS"));
}

TEST_F(CudaExecutorTest, MemoryThatIsNotThereIsAnErrorWithoutLeaks) {
  for (int nth = 1; nth <= 5; ++nth) {
    fake_->failures["cuMemAlloc_v2"] = {nth, 2};
    EXPECT_TRUE(absl::IsResourceExhausted(Executor::Create(MakeModule()).status())) << nth;
    EXPECT_EQ(fake_->Leaks(), "") << nth;
  }
}

}  // namespace
}  // namespace heddle::runtime
