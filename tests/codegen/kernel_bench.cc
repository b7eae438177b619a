// kernel-bench FILE.ir [--assembly | --lowered | --llvm] [-target T] [-workers N]: time one
// scheduled program by hand.
#include <algorithm>
#include <chrono>
#include <fstream>
#include <iostream>
#include <sstream>

#include "compiler/codegen/llvm_backend.h"
#include "compiler/ir/status_macros.h"
#include "compiler/ir/text.h"
#include "compiler/ir/verifier.h"
#include "compiler/ir/visit.h"
#include "compiler/pass/lower.h"
#include "compiler/runtime/kernel_library.h"
#include "compiler/runtime/thread_pool.h"
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
  std::sort(times.begin(), times.end());
  double gflop = ir::CountFlops(program) * 1e-9;
  std::cout << "min " << times[0] * 1e3 << " ms, " << gflop / times[0] << " GFLOP/s; median "
            << times[kRuns / 2] * 1e3 << " ms, " << gflop / times[kRuns / 2] << " GFLOP/s\n";
  return absl::OkStatus();
}

absl::Status Run(const std::vector<std::string>& args) {
  std::string file, show, target_text = "llvm -mcpu=native";
  int workers = 1;
  for (size_t i = 0; i < args.size(); ++i) {
    if (args[i] == "-target" && i + 1 < args.size()) {
      target_text = args[++i];
    } else if (args[i] == "-workers" && i + 1 < args.size()) {
      workers = std::stoi(args[++i]);
    } else {
      (args[i][0] == '-' ? show : file) = args[i];
    }
  }
  std::ostringstream text;
  text << std::ifstream(file).rdbuf();
  HEDDLE_ASSIGN_OR_RETURN(ir::Program program, ir::Parse(text.str()));
  HEDDLE_RETURN_IF_ERROR(ir::Verify(program));
  pass::LowerOptions lower;
  lower.observer = [](const std::string& name, const ir::Program&, double ms) {
    std::cerr << name << " " << ms << " ms\n";
  };
  HEDDLE_ASSIGN_OR_RETURN(ir::Program lowered, pass::Lower(program, lower));
  if (show == "--lowered") std::cout << ir::Print(lowered);
  HEDDLE_ASSIGN_OR_RETURN(ir::Target target, ir::ParseTarget(target_text));
  codegen::LlvmOptions options;
  std::string assembly, llvm_ir;
  if (show == "--assembly") options.assembly = &assembly;
  if (show == "--llvm") options.llvm_ir = &llvm_ir;
  auto start = std::chrono::steady_clock::now();
  HEDDLE_ASSIGN_OR_RETURN(codegen::Artifact artifact,
                          codegen::CompileLlvm({lowered}, target, options));
  std::cerr << "compiled in " << Seconds(start) * 1e3 << " ms\n";
  std::cout << assembly << llvm_ir;
  return Time(program, artifact, workers);
}

}  // namespace
}  // namespace heddle

int main(int argc, char** argv) {
  absl::Status status = heddle::Run({argv + 1, argv + argc});
  if (!status.ok()) std::cerr << status << "\n";
  return !status.ok();
}
