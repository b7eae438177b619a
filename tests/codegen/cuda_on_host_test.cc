// The CUDA C++ of the back end, run on this CPU against the interpreter: schedules with blocks,
// threads, barriers and asynchronous copies. (The conformance cases:
// tests/bench/gpu_conformance_test.)
#include <gtest/gtest.h>

#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "compiler/ir/text.h"
#include "compiler/schedule/trace.h"
#include "tests/codegen/cuda_on_host.h"
#include "tests/codegen/gpu_testing.h"
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

}  // namespace
}  // namespace heddle::testing
