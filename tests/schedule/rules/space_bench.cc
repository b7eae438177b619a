// space-bench [WORKLOAD..] [-random N] [-threads T] [-seed S] [-naive] [-show]: GFLOP/s of the
// default schedule, and of the best of N random points of the space, by hand.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include "base/status_macros.h"
#include "compiler/codegen/backend.h"
#include "compiler/codegen/llvm/llvm_backend.h"
#include "compiler/ir/text.h"
#include "compiler/ir/visit.h"
#include "compiler/pass/hoist_constants.h"
#include "compiler/pass/lower.h"
#include "compiler/runtime/kernel_library.h"
#include "compiler/runtime/thread_pool.h"
#include "compiler/schedule/space.h"
#include "tests/codegen/kernel_runner.h"
#include "tests/schedule/workloads.h"

namespace heddle::schedule {
namespace {

using Clock = std::chrono::steady_clock;

struct Options {
  std::vector<std::string> workloads;
  int random = 0;
  int threads = 1;
  uint64_t seed = 1;
  bool naive = false;
  bool show = false;
};

// Fastest of several calls, in seconds; without what is computed when a module is made.
absl::StatusOr<double> Time(const ir::Program& whole, const machine::TargetInfo& target) {
  const ir::Program scheduled = pass::HoistConstants(whole).kernel;
  HEDDLE_ASSIGN_OR_RETURN(ir::Program lowered, pass::Lower(scheduled));
  HEDDLE_ASSIGN_OR_RETURN(codegen::Artifact artifact,
                          codegen::CompileLlvm({lowered}, target.target));
  HEDDLE_ASSIGN_OR_RETURN(auto library, runtime::KernelLibrary::Load(artifact.shared_object));
  HEDDLE_ASSIGN_OR_RETURN(heddle_kernel kernel, library->Find(artifact.kernels[0].symbol));
  std::vector<testing::HostTensor> inputs = testing::MakeInputs(scheduled, 1);
  std::vector<testing::HostTensor> outputs = testing::MakeOutputs(scheduled);
  std::vector<void*> buffers;
  for (auto& tensor : inputs) buffers.push_back(tensor.data());
  for (auto& tensor : outputs) buffers.push_back(tensor.data());
  testing::HostTensor workspace(
      ir::Buffer{"workspace",
                 ir::DType::kI8,
                 {std::max<int64_t>(1, artifact.kernels[0].workspace_bytes)},
                 {}});
  runtime::ThreadPool pool(target.target.threads);
  double best = 1e9;
  auto start = Clock::now();
  for (int i = 0; i < 50; ++i) {
    auto begin = Clock::now();
    kernel(buffers.data(), workspace.data(), pool.host());
    best = std::min(best, std::chrono::duration<double>(Clock::now() - begin).count());
    if (i > 2 && Clock::now() - start > std::chrono::milliseconds(300)) break;
  }
  return best;
}

absl::Status Bench(const std::string& name, const Options& options) {
  HEDDLE_ASSIGN_OR_RETURN(ir::Program naive, MakeWorkload(name));
  Target target;
  target.threads = options.threads;
  HEDDLE_ASSIGN_OR_RETURN(target, codegen::ResolveTarget(target));
  HEDDLE_ASSIGN_OR_RETURN(machine::TargetInfo info, codegen::DescribeTarget(target));
  const double gflop = ir::CountFlops(naive) * 1e-9;
  std::printf("%-4s", name.c_str());
  if (options.naive) {
    HEDDLE_ASSIGN_OR_RETURN(double seconds, Time(naive, info));
    std::printf(" naive %8.1f", gflop / seconds);
  }
  HEDDLE_ASSIGN_OR_RETURN(Trace trace, DefaultTrace(naive, info));
  HEDDLE_ASSIGN_OR_RETURN(ir::Program scheduled, Replay(naive, trace));
  HEDDLE_ASSIGN_OR_RETURN(double by_default, Time(scheduled, info));
  std::printf(" default %8.1f GFLOP/s %9.1f us", gflop / by_default, by_default * 1e6);
  std::fflush(stdout);
  if (options.show) std::printf("\n%s%s", ToText(trace).c_str(), ir::Print(scheduled).c_str());
  if (options.random > 0) {
    HEDDLE_ASSIGN_OR_RETURN(auto space, MakeSpace(naive, info));
    Rng rng(options.seed);
    double best = 1e9;
    Trace best_trace;
    int tried = 0, expanded = 0;
    double expanding = 0;
    while (expanded < options.random && tried < 200 * options.random) {
      Point point = space->Random(rng);
      auto begin = Clock::now();
      auto candidate = space->Expand(point);
      expanding += std::chrono::duration<double>(Clock::now() - begin).count();
      ++tried;
      if (!candidate.ok()) continue;
      ++expanded;
      HEDDLE_ASSIGN_OR_RETURN(ir::Program program, Replay(naive, *candidate));
      auto seconds = Time(program, info);
      if (!seconds.ok()) {
        std::printf("\n%s%s\n", ToText(*candidate).c_str(), seconds.status().ToString().c_str());
        continue;
      }
      if (*seconds >= best) continue;
      best = *seconds;
      best_trace = *std::move(candidate);
    }
    std::printf(" best of %d: %8.1f GFLOP/s (space %.1e, feasible %.0f%%, expand %.2f ms)",
                expanded, gflop / best, space->Size(), 100.0 * expanded / std::max(tried, 1),
                1e3 * expanding / std::max(tried, 1));
    if (options.show) std::printf("\n%s", ToText(best_trace).c_str());
  }
  std::printf("\n");
  return absl::OkStatus();
}

}  // namespace
}  // namespace heddle::schedule

int main(int argc, char** argv) {
  heddle::schedule::Options options;
  for (int i = 1; i < argc; ++i) {
    std::string arg = argv[i];
    if (arg == "-random" && i + 1 < argc) {
      options.random = std::stoi(argv[++i]);
    } else if (arg == "-threads" && i + 1 < argc) {
      options.threads = std::stoi(argv[++i]);
    } else if (arg == "-seed" && i + 1 < argc) {
      options.seed = std::stoull(argv[++i]);
    } else if (arg == "-naive") {
      options.naive = true;
    } else if (arg == "-show") {
      options.show = true;
    } else {
      options.workloads.push_back(arg);
    }
  }
  if (options.workloads.empty()) options.workloads = heddle::schedule::WorkloadNames();
  for (const std::string& name : options.workloads) {
    absl::Status status = heddle::schedule::Bench(name, options);
    if (!status.ok()) std::printf(" %s\n", status.ToString().c_str());
  }
}
