// Times one program by hand:
//   kernel-bench FILE.ir [-trace FILE|default] [-random N] [-target T] [-workers N]
//                        [--scheduled | --lowered | --llvm | --assembly]
// -random times points of the search space of a naive program.
#include <algorithm>
#include <chrono>
#include <fstream>
#include <iostream>
#include <sstream>

#include "base/quantiles.h"
#include "base/status_macros.h"
#include "compiler/codegen/backend.h"
#include "compiler/codegen/llvm/llvm_backend.h"
#include "compiler/ir/text.h"
#include "compiler/ir/verify/verifier.h"
#include "compiler/ir/visit.h"
#include "compiler/pass/lower.h"
#include "compiler/runtime/kernel_library.h"
#include "compiler/runtime/thread_pool.h"
#include "compiler/schedule/space.h"
#include "compiler/schedule/trace.h"
#include "tests/codegen/kernel_runner.h"

namespace heddle {
namespace {

constexpr int kRuns = 15;

double Seconds(std::chrono::steady_clock::time_point since) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - since).count();
}

absl::Status Time(const ir::Program& program, const codegen::Artifact& artifact, int workers) {
  HEDDLE_ASSIGN_OR_RETURN(auto library, runtime::KernelLibrary::Load(artifact.shared_object));
  HEDDLE_ASSIGN_OR_RETURN(heddle_kernel kernel, library->Find(artifact.kernels[0].symbol));
  std::vector<testing::HostTensor> inputs = testing::MakeInputs(program, 1),
                                   outputs = testing::MakeOutputs(program);
  std::vector<void*> buffers;
  for (auto& tensor : inputs) buffers.push_back(tensor.data());
  for (auto& tensor : outputs) buffers.push_back(tensor.data());
  ir::Buffer scratch{
      "workspace", ir::DType::kI8, {std::max<int64_t>(1, artifact.kernels[0].workspace_bytes)}, {}};
  testing::HostTensor workspace(scratch);
  runtime::ThreadPool pool(workers);
  std::vector<double> times;
  for (int i = 0; i < kRuns; ++i) {
    auto start = std::chrono::steady_clock::now();
    kernel(buffers.data(), workspace.data(), pool.host());
    times.push_back(Seconds(start));
  }
  const double gflop = ir::CountFlops(program) * 1e-9;
  const double least = Quantile(times, 0), median = Median(times);
  std::cout << "min " << least * 1e3 << " ms, " << gflop / least << " GFLOP/s; median "
            << median * 1e3 << " ms, " << gflop / median << " GFLOP/s\n";
  return absl::OkStatus();
}

struct Args {
  std::string file, show, trace, target = "llvm -mcpu=native";
  int workers = 1;
  int random = 0;  // points of the search space to time
};

absl::Status CompileAndTime(const ir::Program& scheduled, const Args& args, const Target& target) {
  pass::LowerOptions lower;
  if (!args.random) {
    lower.observer = [](const std::string& name, const ir::Program&, double ms) {
      std::cerr << name << " " << ms << " ms\n";
    };
  }
  auto start = std::chrono::steady_clock::now();
  HEDDLE_ASSIGN_OR_RETURN(ir::Program lowered, pass::Lower(scheduled, lower));
  double lowered_in = Seconds(start);
  if (args.show == "--lowered") std::cout << ir::Print(lowered);
  codegen::LlvmOptions options;
  std::string assembly, llvm_ir;
  if (args.show == "--assembly") options.assembly = &assembly;
  if (args.show == "--llvm") options.llvm_ir = &llvm_ir;
  start = std::chrono::steady_clock::now();
  HEDDLE_ASSIGN_OR_RETURN(codegen::Artifact artifact,
                          codegen::CompileLlvm({lowered}, target, options));
  std::cout << assembly << llvm_ir << "lowered in " << lowered_in * 1e3 << " ms, compiled in "
            << Seconds(start) * 1e3 << " ms; ";
  return Time(scheduled, artifact, args.workers);
}

absl::Status Run(const Args& args) {
  std::ostringstream text;
  text << std::ifstream(args.file).rdbuf();
  HEDDLE_ASSIGN_OR_RETURN(ir::Program program, ir::Parse(text.str()));
  HEDDLE_RETURN_IF_ERROR(ir::Verify(program));
  HEDDLE_ASSIGN_OR_RETURN(Target target, ParseTarget(args.target));
  HEDDLE_ASSIGN_OR_RETURN(target, codegen::ResolveTarget(target));
  HEDDLE_ASSIGN_OR_RETURN(machine::TargetInfo info, codegen::DescribeTarget(target));
  if (args.random) {
    HEDDLE_ASSIGN_OR_RETURN(auto space, schedule::MakeSpace(program, info));
    schedule::Rng rng(1);
    for (int i = 0; i < args.random; ++i) {
      auto trace = space->Expand(space->Random(rng));
      if (!trace.ok()) continue;
      HEDDLE_ASSIGN_OR_RETURN(ir::Program scheduled, schedule::Replay(program, *trace));
      absl::Status status = CompileAndTime(scheduled, args, target);
      if (!status.ok()) std::cout << status << "\n" << schedule::ToText(*trace);
    }
    return absl::OkStatus();
  }
  if (!args.trace.empty()) {
    schedule::Trace trace;
    if (args.trace == "default") {
      HEDDLE_ASSIGN_OR_RETURN(trace, schedule::DefaultTrace(program, info));
      std::cerr << schedule::ToText(trace);
    } else {
      std::ostringstream steps;
      steps << std::ifstream(args.trace).rdbuf();
      HEDDLE_ASSIGN_OR_RETURN(trace, schedule::ParseTrace(steps.str()));
    }
    HEDDLE_ASSIGN_OR_RETURN(program, schedule::Replay(program, trace));
    if (args.show == "--scheduled") std::cout << ir::Print(program);
  }
  return CompileAndTime(program, args, target);
}

}  // namespace
}  // namespace heddle

int main(int argc, char** argv) {
  heddle::Args args;
  for (int i = 1; i < argc; ++i) {
    std::string word = argv[i];
    const bool more = i + 1 < argc;
    if (word == "-target" && more) {
      args.target = argv[++i];
    } else if (word == "-workers" && more) {
      args.workers = std::stoi(argv[++i]);
    } else if (word == "-trace" && more) {
      args.trace = argv[++i];
    } else if (word == "-random" && more) {
      args.random = std::stoi(argv[++i]);
    } else {
      (word[0] == '-' ? args.show : args.file) = word;
    }
  }
  absl::Status status = heddle::Run(args);
  if (!status.ok()) std::cerr << status << "\n";
  return !status.ok();
}
