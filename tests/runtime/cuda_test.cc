// What is asked of a CUDA driver, in which order, and what becomes of its errors: with a driver
// without a GPU (fake_cuda.h) in a real one's place.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <regex>
#include <thread>

#include "compiler/runtime/cubins.h"
#include "compiler/runtime/cuda/device.h"
#include "compiler/runtime/cuda/driver.h"
#include "compiler/runtime/cuda/kernel.h"
#include "compiler/runtime/cuda/nvml.h"
#include "compiler/runtime/cuda/timing.h"
#include "compiler/runtime/device_kind.h"
#include "tests/runtime/fake_cuda.h"

namespace heddle::runtime {
namespace {

using test::FakeCubin;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class CudaTest : public ::testing::Test {
 protected:
  void SetUp() override {
    setenv(kCudaDriverVariable, HEDDLE_FAKE_CUDA, 1);
    fake_ = &test::FakeCuda(HEDDLE_FAKE_CUDA);
    *fake_ = {};
  }
  void TearDown() override { EXPECT_EQ(fake_->sticky == 0 ? fake_->Leaks() : "", ""); }

  std::unique_ptr<CudaDevice> Open() {
    auto device = CudaDevice::Open(0);
    EXPECT_TRUE(device.ok()) << device.status();
    return *std::move(device);
  }

  test::FakeCudaState* fake_ = nullptr;
};

// In processes of their own, since a process looks for the driver once.
TEST(NoDriverTest, OneLineSaysWhatIsMissing) {
  EXPECT_EXIT(
      {
        setenv(kCudaDriverVariable, "libheddle_no_such_driver.so.1", 1);
        const absl::StatusOr<CudaInfo> info = DescribeCudaDevice(0);
        std::fprintf(stderr, "%s\n", std::string(info.status().message()).c_str());
        _exit(absl::IsFailedPrecondition(info.status()) && CudaDriverVersion().empty() ? 0 : 1);
      },
      ::testing::ExitedWithCode(0),
      "no CUDA driver on this host \\(libheddle_no_such_driver.so.1 not found\\): run this on");
}

TEST(NoDriverTest, ADriverThatDoesNotStartSaysWhy) {
  EXPECT_EXIT(
      {
        setenv(kCudaDriverVariable, HEDDLE_FAKE_CUDA, 1);
        setenv("HEDDLE_FAKE_CUDA_FAIL", "cuInit:1:100", 1);
        const absl::Status status = CudaDriver().status();
        std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
        _exit(absl::IsFailedPrecondition(status) ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "cannot start the CUDA driver: CUDA_ERROR_OTHER");
}

TEST_F(CudaTest, ADeviceIsDescribedAndNamed) {
  const auto info = DescribeCudaDevice(0);
  ASSERT_TRUE(info.ok()) << info.status();
  EXPECT_EQ(info->arch, "sm_90");
  EXPECT_EQ(info->driver, "13.0");
  EXPECT_EQ(info->DeviceKey(), "fake-gpu-12-gb-sm_90");
  EXPECT_EQ(info->l2_bytes, 1 << 20);
  EXPECT_THAT(std::string(DescribeCudaDevice(1).status().message()),
              HasSubstr("there is no cuda:1: the driver shows 1 GPU"));
}

TEST_F(CudaTest, IsAKindOfDevice) {
  const DeviceKind* const kind = FindDeviceKind("cuda");
  ASSERT_NE(kind, nullptr);
  const auto info = kind->Describe(0);
  ASSERT_TRUE(info.ok()) << info.status();
  EXPECT_EQ(info->target, "cuda -arch=sm_90");
  EXPECT_EQ(info->key, "fake-gpu-12-gb-sm_90");
  EXPECT_EQ(info->driver, "CUDA 13.0");
  for (const char* other : {"", "llvm", "cud", "cudarama"})
    EXPECT_EQ(FindDeviceKind(other), nullptr) << other;
  const auto device = ParseDevice("cuda:3");
  ASSERT_TRUE(device.ok()) << device.status();
  EXPECT_EQ(device->kind, kind);
  EXPECT_EQ(device->ordinal, 3);
  for (const char* bad : {"", "cuda", "cuda:", "cuda:-1", "cuda:1x", "gpu:0", "cuda:99", ":0"}) {
    EXPECT_THAT(std::string(ParseDevice(bad).status().message()), HasSubstr("one like cuda:0"))
        << bad;
  }
}

TEST_F(CudaTest, MemoryIsUsedAgainAndGivenBack) {
  auto device = Open();
  CuPointer first = 0;
  {
    auto a = device->Allocate(1000);
    auto b = device->Allocate(0);
    ASSERT_TRUE(a.ok() && b.ok());
    first = a->address();
    EXPECT_EQ(first % 512, 0u);
    EXPECT_NE(b->address(), 0u);
    EXPECT_EQ(device->reserved_bytes(), 1024 + 512);
  }
  EXPECT_EQ(device->free_bytes(), 1024 + 512);
  auto again = device->Allocate(700);
  EXPECT_EQ(again->address(), first);
  auto larger = device->Allocate(5000);  // no free block is as large
  EXPECT_EQ(fake_->Count("cuMemAlloc_v2"), 3);
}

TEST_F(CudaTest, FreeBlocksGoWhenMemoryIsShort) {
  fake_->memory_limit = 1 << 20;
  auto device = Open();
  { auto most = device->Allocate(900 << 10); }
  auto other = device->Allocate(300 << 10);
  ASSERT_TRUE(other.ok()) << other.status();
  const auto too_much = device->Allocate(900 << 10);
  EXPECT_TRUE(absl::IsResourceExhausted(too_much.status()));
  EXPECT_THAT(std::string(too_much.status().message()),
              HasSubstr("cannot allocate 921600 bytes on Fake GPU (12 GB): CUDA_ERROR_OUT_OF_MEM"));
}

TEST_F(CudaTest, AKernelGetsItsArgumentsGridAndSharedMemory) {
  auto device = Open();
  auto module = device->Load(FakeCubin());
  ASSERT_TRUE(module.ok()) << module.status();
  auto x = device->Allocate(16), y = device->Allocate(16), space = device->Allocate(1024);
  std::vector<std::string> seen;
  fake_->on_launch = [&](const test::FakeLaunch& launch) {
    const auto argument = [&](int i) { return *static_cast<CuPointer*>(launch.arguments[i]); };
    seen.push_back(launch.symbol);
    if (launch.symbol == "first") {
      EXPECT_EQ(argument(0), x->address());
      EXPECT_EQ(argument(1), space->address() + 256);
      EXPECT_EQ(launch.grid[2], 7u);
      EXPECT_EQ(launch.shared_bytes, 100u << 10);
    } else {
      EXPECT_EQ(argument(0), y->address());
      EXPECT_EQ(launch.block[1], 4u);
    }
  };
  GpuLaunch first{.symbol = "first", .grid = {1, 1, 7}, .arguments = {{0, 0}, {-1, 256}}};
  first.dynamic_shared_bytes = 100 << 10;
  const GpuLaunch second{.symbol = "second", .block = {8, 4, 1}, .arguments = {{1, 0}}};
  const auto kernel = CudaKernel::Bind(**module, {first, second}, {x->address(), y->address()},
                                       space->address(), 1024);
  ASSERT_TRUE(kernel.ok()) << kernel.status();
  EXPECT_EQ(fake_->Count("cuFuncSetAttribute"), 1);
  ASSERT_TRUE(kernel->Launch(*device).ok());
  ASSERT_TRUE(device->Synchronize().ok());
  EXPECT_THAT(seen, ElementsAre("first", "second"));
}

TEST_F(CudaTest, LaunchesThatCannotBeAreRefused) {
  const GpuLaunch good{.symbol = "k", .arguments = {{0, 0}, {-1, 256}}};
  ASSERT_TRUE(CheckLaunches({good}, 1, 512).ok());
  const auto refused = [&](void (*spoil)(GpuLaunch&)) {
    GpuLaunch launch = good;
    spoil(launch);
    return absl::IsInvalidArgument(CheckLaunches({good, launch}, 1, 512));
  };
  EXPECT_TRUE(absl::IsInvalidArgument(CheckLaunches({}, 1, 512)));
  EXPECT_TRUE(refused([](GpuLaunch& l) { l.symbol.clear(); }));
  EXPECT_TRUE(refused([](GpuLaunch& l) { l.grid[0] = 0; }));
  EXPECT_TRUE(refused([](GpuLaunch& l) { l.grid[1] = 65536; }));
  EXPECT_TRUE(refused([](GpuLaunch& l) { l.block = {64, 32, 1}; }));
  EXPECT_TRUE(refused([](GpuLaunch& l) { l.block[2] = 65; }));
  EXPECT_TRUE(refused([](GpuLaunch& l) { l.dynamic_shared_bytes = -1; }));
  EXPECT_TRUE(refused([](GpuLaunch& l) { l.arguments[0].buffer = 1; }));
  EXPECT_TRUE(refused([](GpuLaunch& l) { l.arguments[0].buffer = -2; }));
  EXPECT_TRUE(refused([](GpuLaunch& l) { l.arguments[1].workspace_offset = 768; }));
  EXPECT_TRUE(refused([](GpuLaunch& l) { l.arguments[1].workspace_offset = 100; }));
  // 4 KiB of parameters: addresses have 8 bytes; what is named again is a map of 128.
  GpuLaunch largest = good;
  largest.arguments.resize(2 + 31, GpuArgument{0, 0});
  EXPECT_TRUE(CheckLaunches({largest}, 1, 512).ok());
  EXPECT_TRUE(refused([](GpuLaunch& l) { l.arguments.resize(2 + 32, GpuArgument{0, 0}); }));
}

TEST_F(CudaTest, MoreSharedMemoryThanTheGpuHasAndKernelsThatAreNotThereAreRefused) {
  auto device = Open();
  auto module = device->Load(FakeCubin());
  EXPECT_THAT(
      std::string((*module)->Find("k", 300 << 10).status().message()),
      HasSubstr("kernel k wants 307200 bytes of shared memory; Fake GPU (12 GB) has 232448"));
  EXPECT_TRUE(absl::IsInvalidArgument((*module)->Find("missing", 0).status()));
}

TEST_F(CudaTest, WhatIsNoCubinNeverReachesTheDriver) {
  auto device = Open();
  std::string other = FakeCubin(), cut = FakeCubin();
  other[18] = 62;  // x86-64
  cut[60] = 5;     // sections beyond the end
  for (const std::string& bytes : {std::string("PTX"), std::string(), other, cut}) {
    EXPECT_TRUE(absl::IsInvalidArgument(device->Load(bytes).status()));
  }
  EXPECT_EQ(fake_->Count("cuModuleLoadData"), 0);
}

TEST_F(CudaTest, CodeMayBeSeveralCubins) {
  auto device = Open();
  const std::string code = JoinCubins({FakeCubin(), FakeCubin(), FakeCubin()});
  {
    auto module = device->Load(code);
    ASSERT_TRUE(module.ok()) << module.status();
    EXPECT_EQ(fake_->modules, 3);
    fake_->failures["cuModuleGetFunction"] = {1, kCuNotFound};
    EXPECT_TRUE((*module)->Find("k", 0).ok()) << "the second cubin has it";
    EXPECT_EQ(fake_->Count("cuModuleGetFunction"), 2);
    EXPECT_TRUE(absl::IsInvalidArgument((*module)->Find("missing", 0).status()));
  }
  EXPECT_EQ(fake_->modules, 0);
  // What is cut off or damaged never reaches the driver.
  const int loads = fake_->Count("cuModuleLoadData");
  for (size_t size = 0; size < code.size(); ++size)
    EXPECT_TRUE(absl::IsInvalidArgument(device->Load(code.substr(0, size)).status())) << size;
  for (const size_t at : {size_t{8}, size_t{15}, size_t{16}, size_t{23}, size_t{64}}) {
    std::string damaged = code;
    damaged[at] = static_cast<char>(0x7e);
    EXPECT_TRUE(absl::IsInvalidArgument(device->Load(damaged).status())) << at;
  }
  EXPECT_EQ(fake_->Count("cuModuleLoadData"), loads);
}

// The table that a kernel's code has beside it (CudaModule::Boxes).
TEST_F(CudaTest, ParametersBecomeMapsWhereTheCodeSaysSo) {
  auto device = Open();
  auto module = device->Load(FakeCubin());
  const auto x = device->Allocate(64 * 128 * 2), y = device->Allocate(64);
  ASSERT_TRUE(x.ok() && y.ok());
  const std::vector<GpuLaunch> launches = {{.symbol = "other", .arguments = {{0}}},
                                           {.symbol = "k", .arguments = {{1}, {0}, {0}}}};
  const auto bind = [&](std::vector<int32_t> table) {
    fake_->variables["k_boxes"] = std::move(table);
    return CudaKernel::Bind(**module, launches, {x->address(), y->address()}, 0, 0);
  };
  int seen = 0;
  fake_->on_launch = [&](const test::FakeLaunch& launch) {
    const auto address = [&](int k) { return *static_cast<uint64_t*>(launch.arguments[k]); };
    if (launch.symbol != "k") {
      EXPECT_EQ(address(0), x->address());
      return;
    }
    ++seen;
    EXPECT_EQ(address(0), y->address());
    EXPECT_EQ(address(1), x->address());
    const auto* map = static_cast<const uint64_t*>(launch.arguments[2]);  // as HostMap
    EXPECT_EQ(std::vector<uint64_t>(map, map + 4),
              (std::vector<uint64_t>{x->address(), 128, 64, 32}));
  };
  const auto kernel = bind({2, 128, 64, 32});
  ASSERT_TRUE(kernel.ok()) << kernel.status();
  EXPECT_TRUE(kernel->Launch(*device).ok());
  EXPECT_TRUE(device->Synchronize().ok());
  EXPECT_EQ(seen, 1);
  for (const std::vector<int32_t>& table : std::vector<std::vector<int32_t>>{
           {3, 128, 64, 32},   // no such parameter
           {-1, 128, 64, 32},  // nor this
           {1, 128, 64, 32},   // an address
           {1, 128, 64, 32, 2, 128, 64, 32},
           std::vector<int32_t>{},
           {2, 128, 64},         // half a row
           {2, 0, 64, 32},       // no matrix
           {2, 128, 64, 512},    // the driver refuses the box
           {2, 100, 64, 32}}) {  // and rows that are no multiple of 16 bytes
    const auto refused = bind(table);
    EXPECT_TRUE(absl::IsInvalidArgument(refused.status())) << refused.status();
  }
  fake_->variables.clear();
  const auto lost = CudaKernel::Bind(**module, launches, {x->address(), y->address()}, 0, 0);
  EXPECT_TRUE(absl::IsInvalidArgument(lost.status()));
  EXPECT_THAT(std::string(lost.status().message()),
              HasSubstr("launch of 'k': maps among its arguments: 1, in the table of its code: 0"));
}

TEST_F(CudaTest, OneCubinStaysAsItIs) {
  EXPECT_EQ(JoinCubins({FakeCubin()}), FakeCubin());
  const std::string code = JoinCubins({"ab", "", "c"});
  const auto cubins = SplitCubins(code);
  ASSERT_TRUE(cubins.ok()) << cubins.status();
  EXPECT_THAT(*cubins, ::testing::ElementsAre("ab", "", "c"));
  EXPECT_EQ(SplitCubins(JoinCubins({}))->size(), 0u);
}

TEST_F(CudaTest, ErrorsOfKernelsAreTypedAndStickyOnesStay) {
  auto device = Open();
  auto module = device->Load(FakeCubin());
  const auto kernel = CudaKernel::Bind(**module, {{.symbol = "k"}}, {}, 0, 0);
  fake_->failures["cuLaunchKernel"] = {1, 701};
  EXPECT_TRUE(absl::IsInvalidArgument(kernel->Launch(*device)));
  EXPECT_TRUE(kernel->Launch(*device).ok());
  fake_->failures["cuStreamSynchronize"] = {1, 700};
  const absl::Status status = device->Synchronize();
  EXPECT_TRUE(absl::IsAborted(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("CUDA_ERROR_ILLEGAL_ADDRESS"));
  EXPECT_TRUE(absl::IsAborted(kernel->Launch(*device)));
}

TEST_F(CudaTest, ColdCallsAreTimedWithoutTheFlush) {
  auto device = Open();
  auto module = device->Load(FakeCubin());
  const auto kernel = CudaKernel::Bind(**module, {{.symbol = "a"}, {.symbol = "b"}}, {}, 0, 0);
  fake_->launch_ns = [](const test::FakeLaunch& launch) {
    return launch.symbol == "a" ? 20000.0 : 30000.0;
  };
  TimingOptions options;
  options.repeats = 4;
  options.min_repeat = absl::Microseconds(500);
  options.flush_bytes = 1;
  const auto timing = TimeOnDevice(
      *device, [&] { return kernel->Launch(*device); }, options);
  ASSERT_TRUE(timing.ok()) << timing.status();
  ASSERT_EQ(timing->samples_ns.size(), 4u);
  for (const double ns : timing->samples_ns) EXPECT_NEAR(ns, 50000, 50);
  EXPECT_EQ(fake_->Count("cuLaunchKernel"), 2 * timing->calls);
  EXPECT_EQ(fake_->Count("cuMemsetD8Async"), timing->calls - options.warmup_calls);
  EXPECT_GE(timing->calls, 4 * 2 + 1);
  options.flush_bytes = 0;
  const auto warm = TimeOnDevice(
      *device, [&] { return kernel->Launch(*device); }, options);
  ASSERT_TRUE(warm.ok());
  for (const double ns : warm->samples_ns) EXPECT_NEAR(ns, 50000, 50);
}

TEST_F(CudaTest, AKernelSlowerThanItsRivalIsTimedShortly) {
  auto device = Open();
  auto module = device->Load(FakeCubin());
  const auto kernel = CudaKernel::Bind(**module, {{.symbol = "a"}}, {}, 0, 0);
  fake_->launch_ns = [](const test::FakeLaunch&) { return 50000.0; };
  const auto call = [&] { return kernel->Launch(*device); };
  TimingOptions options;
  options.repeats = 5;
  options.min_repeat = absl::Microseconds(500);
  options.flush_bytes = 1;
  options.rival_ns = 25000;
  const auto far = TimeOnDevice(*device, call, options);
  ASSERT_TRUE(far.ok()) << far.status();
  EXPECT_EQ(far->samples_ns.size(), 1u);
  EXPECT_EQ(far->calls, options.warmup_calls + kFewCalls) << "it does not even fill the sample";
  options.rival_ns = 40000;
  const auto near = TimeOnDevice(*device, call, options);
  EXPECT_EQ(near->samples_ns.size(), static_cast<size_t>(kFewSamples));
  options.flush_bytes = 0;
  const auto warm = TimeOnDevice(*device, call, options);
  EXPECT_EQ(warm->samples_ns.size(), static_cast<size_t>(kFewSamples));
  options.rival_ns = 60000;
  const auto winner = TimeOnDevice(*device, call, options);
  EXPECT_EQ(winner->samples_ns.size(), 5u) << "a winner is timed in full";
}

// The device still fills memory, then warms its caches, when the host has given it what is timed.
TEST_F(CudaTest, WarmCallsAreGivenWhileTheDeviceIsBusy) {
  auto device = Open();
  auto module = device->Load(FakeCubin());
  const auto kernel = CudaKernel::Bind(**module, {{.symbol = "a"}}, {}, 0, 0);
  TimingOptions options;
  options.repeats = 2;
  options.min_repeat = absl::Microseconds(200);
  fake_->calls.clear();
  const auto timing = TimeOnDevice(
      *device, [&] { return kernel->Launch(*device); }, options);
  ASSERT_TRUE(timing.ok()) << timing.status();
  for (const double ns : timing->samples_ns) EXPECT_NEAR(ns, 1000, 1);
  EXPECT_EQ(fake_->Count("cuLaunchKernel"), timing->calls);
  std::string order;  // of what the device was given
  for (const std::string& call : fake_->calls) {
    order += call == "cuMemsetD8Async"       ? "f"
             : call == "cuEventRecord"       ? "e"
             : call == "cuLaunchKernel"      ? "k"
             : call == "cuStreamSynchronize" ? "s"
                                             : "";
  }
  EXPECT_TRUE(std::regex_match(order, std::regex("ks(ef+ekek+es)+"))) << order;
}

TEST_F(CudaTest, AnErrorInTheMiddleOfTimingComesOut) {
  auto device = Open();
  fake_->failures["cuEventRecord"] = {5, 702};
  TimingOptions options;
  options.min_repeat = absl::Microseconds(50);
  const auto timing = TimeOnDevice(
      *device, [] { return absl::OkStatus(); }, options);
  EXPECT_TRUE(absl::IsAborted(timing.status()));
}

TEST_F(CudaTest, AnotherThreadMayUseAndDestroyADevice) {
  auto device = Open();
  auto host = device->AllocateHost(100);
  ASSERT_TRUE(host.ok());
  std::thread([&] {
    ASSERT_TRUE(device->Enter().ok());
    auto memory = device->Allocate(100);
    ASSERT_TRUE(device->Upload(memory->address(), host->data(), 100).ok());
    { HostMemory gone = *std::move(host); }
    { DeviceMemory gone = *std::move(memory); }
    device.reset();
  }).join();
}

TEST(NvmlTest, IsOptional) {
  setenv("HEDDLE_NVML", "libheddle_no_such_library.so", 1);
  EXPECT_EQ(ReadGpuClimate("0000:00:00.0").mhz, 0);
  EXPECT_TRUE(GpuClockLock("0000:00:00.0", 0).status().ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(GpuClockLock("0000:00:00.0", 1000).status()));
}

}  // namespace
}  // namespace heddle::runtime
