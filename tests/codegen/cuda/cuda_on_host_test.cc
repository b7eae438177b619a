// The CUDA C++ of the back end, run on this CPU against the interpreter: schedules with blocks,
// threads, barriers and asynchronous copies. (The conformance cases:
// tests/bench/gpu_conformance_test.)
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compiler/codegen/cuda/prelude.h"
#include "compiler/ir/text.h"
#include "compiler/schedule/trace.h"
#include "tests/codegen/cuda/cuda_on_host.h"
#include "tests/codegen/cuda/gpu_testing.h"
#include "tests/codegen/cuda/host_code.h"
#include "tests/schedule/workloads.h"

namespace heddle::testing {
namespace {

// Lowered programs and what they are to compute.
struct Cases {
  std::vector<ir::Program> naive, lowered;
  std::vector<std::string> about;

  void Add(const ir::Program& program, const schedule::Trace& trace, const std::string& what) {
    auto result = LowerForGpu(program, trace);
    ASSERT_TRUE(result.ok()) << result.status() << what;
    result->name = absl::StrCat("p", naive.size());
    naive.push_back(program);
    lowered.push_back(*std::move(result));
    about.push_back(what);
  }

  void Run() const {
    const auto host = CudaOnHost::Compile(lowered);
    if (absl::IsUnavailable(host.status())) GTEST_SKIP() << host.status().message();
    ASSERT_TRUE(host.ok()) << host.status();
    for (size_t k = 0; k < lowered.size(); ++k) {
      const std::vector<HostTensor> inputs = MakeInputs(naive[k], k);
      std::vector<HostTensor> expected = MakeOutputs(naive[k]), found = MakeOutputs(naive[k]);
      ASSERT_TRUE(RunInterpreter(naive[k], inputs, expected).ok());
      absl::Status status = (*host)->Run(k, inputs, found);
      if (status.ok()) status = Compare(naive[k], expected, found);
      EXPECT_TRUE(status.ok()) << status << "\n" << about[k] << ir::Print(lowered[k]);
    }
  }
};

// HEDDLE_SEED=n draws other points.
TEST(CudaOnHost, SchedulesOfSmallOperators) {
  const char* seed = std::getenv("HEDDLE_SEED");
  schedule::Rng rng(seed ? std::strtoull(seed, nullptr, 10) : 1);
  Cases cases;
  for (const char* name : {"8x8-16k3s1", "7x4-24k3s1", "9x16-0k3s2"}) {
    const ir::Program naive = *schedule::MakeWorkload(name);
    const auto space = schedule::MakeSpace(naive, GpuTarget());
    ASSERT_TRUE(space.ok());
    for (int draw = 0; draw < 2; ++draw) {
      auto trace = (*space)->Expand(draw == 0 ? (*space)->Preferred() : (*space)->Random(rng));
      while (!trace.ok()) trace = (*space)->Expand((*space)->Random(rng));
      cases.Add(naive, *trace, absl::StrCat(name, "\n", schedule::ToText(*trace)));
    }
  }
  cases.Run();
}

// What stands for the hardware complains as that does.
TEST(CudaOnHost, AccessesThatAreNotAlignedAreCounted) {
  if (!HasHostCompiler()) GTEST_SKIP() << "the C++ compiler of the build is gone";
  std::string log;
  const std::string code = CompileForHost(absl::StrCat(codegen::kCudaPrelude, R"(
extern "C" __global__ void shifted(float* y, const float* x) {
  const float4 v = *(const float4*)(x + 4 * threadIdx.x);
  *(float4*)(y + 4 * threadIdx.x) = v;
}
)"),
                                          &log);
  ASSERT_NE(code, "") << log;
  void* const library = LoadHostCode(code);
  ASSERT_NE(library, nullptr);
  const HostKernel run = FindHostKernel(library, "shifted");
  ASSERT_NE(run, nullptr);
  alignas(16) float x[12], y[12];
  for (int i = 0; i < 12; ++i) x[i] = static_cast<float>(i);
  const unsigned dims[] = {1, 1, 1, 2, 1, 1};  // two threads, four numbers each
  const auto misaligned = [&](float* to, float* from) {
    void* arguments[] = {&to, &from};
    return run(arguments, dims);
  };
  EXPECT_EQ(misaligned(y, x), 0);
  EXPECT_EQ(misaligned(y, x + 1), 2);
  EXPECT_EQ(y[7], 8.0f) << "it is done nevertheless";
  EXPECT_EQ(misaligned(y + 2, x), 2);
  EXPECT_EQ(misaligned(y + 3, x + 2), 4);
  EXPECT_EQ(misaligned(y + 4, x + 4), 0);
  dlclose(library);
}

// A GPU may copy a box at any time from its start to the end of the wait for it.
TEST(HostCode, NothingIsLeftWhereABoxIsOnItsWay) {
  if (!HasHostCompiler()) GTEST_SKIP() << "the C++ compiler of the build is gone";
  std::string log;
  const std::string code = CompileForHost(std::string(codegen::kCudaPrelude) + R"(
extern "C" __global__ void __launch_bounds__(1) boxed(unsigned short* y, const __grid_constant__ h_map map) {
  __shared__ __align__(1024) unsigned short s[1024];
  __shared__ u64 full[1];
  h_arrivals(full, 1);
  for (int i = 0; i < 1024; ++i) s[i] = 7;
  h_expect(&full[0], 1024);
  h_box(&s[0], &map, &full[0], 0, 0);
  for (int i = 0; i < 1024; ++i) y[i] = s[i];
  h_arrived(&full[0], 0);
  for (int i = 0; i < 1024; ++i) y[1024 + i] = s[i];
}
)",
                                          &log);
  ASSERT_NE(code, "") << log;
  void* const library = LoadHostCode(code);
  ASSERT_NE(library, nullptr);
  const HostKernel run = FindHostKernel(library, "boxed");
  ASSERT_NE(run, nullptr);
  std::vector<uint16_t> seen(2048);
  alignas(16) uint16_t x[8 * 64];
  std::fill(std::begin(x), std::end(x), uint16_t{5});
  uint16_t* y = seen.data();
  HostMap map{reinterpret_cast<uint64_t>(x), 64, 8, 8};
  void* arguments[] = {&y, &map};
  const unsigned dims[] = {1, 1, 1, 1, 1, 1};
  EXPECT_EQ(run(arguments, dims), 0);
  for (size_t i = 0; i < 1024; ++i) {  // the box has 512 numbers
    EXPECT_EQ(seen[i], i < 512 ? 0xffff : 7) << i;
    EXPECT_EQ(seen[1024 + i], i < 512 ? 5 : 7) << i;
  }
  dlclose(library);
}

}  // namespace
}  // namespace heddle::testing
