// heddle-compile-default: compiles a model file with default schedules, without a service, and
// prints how long that took and how the model is cut into kernels. check_onnxruntime.py runs it for
// the zoo, tests/classical/pipelines for classical models.
#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/command_documents.h"
#include "base/status_macros.h"
#include "base/vocabulary/target.h"
#include "client/commands/model_options.h"
#include "client/modules/model_file.h"
#include "compiler/codegen/backend.h"
#include "compiler/driver/compile.h"
#include "compiler/graph/fusion/fuse.h"
#include "compiler/ir/text.h"
#include "compiler/machine/target_info.h"
#include "compiler/schedule/space.h"

namespace heddle {
namespace {

struct Flags {
  std::string model, output, target = "llvm -mcpu=native";
  int threads = 1;
  std::string details;  // part of the label of kernels to print in full
  bool print_tasks = false, print_graph = false;
  client::ModelFlags import;
};

double SecondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

absl::Status PrintDetails(const std::string& workload, const machine::TargetInfo& target) {
  HEDDLE_ASSIGN_OR_RETURN(const ir::Program naive, ir::Parse(workload));
  HEDDLE_ASSIGN_OR_RETURN(const schedule::Trace trace, schedule::DefaultTrace(naive, target));
  std::printf("%s\n%s\n", workload.c_str(), schedule::ToText(trace).c_str());
  return absl::OkStatus();
}

absl::Status Run(const Flags& flags) {
  HEDDLE_ASSIGN_OR_RETURN(Target target, ParseTarget(flags.target));
  target.threads = flags.threads;
  HEDDLE_ASSIGN_OR_RETURN(target, codegen::ResolveTarget(target));
  HEDDLE_ASSIGN_OR_RETURN(const machine::TargetInfo info, codegen::DescribeTarget(target));
  HEDDLE_ASSIGN_OR_RETURN(const client::ModelFile model, client::OpenModel(flags.model));
  const std::string& onnx = model.onnx;
  HEDDLE_ASSIGN_OR_RETURN(const v1::ModelOptions options_message,
                          client::MakeModelOptions(flags.import));
  const ModelOptions import = client::FromProto(options_message, &model);

  auto start = std::chrono::steady_clock::now();
  HEDDLE_ASSIGN_OR_RETURN(const graph::FusedGraph fused, PrepareModel(onnx, import, target));
  const double import_seconds = SecondsSince(start);
  const std::vector<graph::Task> tasks = graph::ExtractTasks(fused);
  size_t longest = 0;
  double flops = 0;
  for (const graph::Task& task : tasks) {
    longest = std::max(longest, task.workload.size());
    flops += task.flops * task.weight;
    if (flags.print_tasks)
      std::printf("%4d x %10.4f GFLOP  %s\n", task.weight, task.flops * 1e-9, task.label.c_str());
    if (!flags.details.empty() && task.label.find(flags.details) != std::string::npos)
      HEDDLE_RETURN_IF_ERROR(PrintDetails(task.workload, info));
  }
  if (flags.print_graph) std::printf("%s", graph::Print(fused.graph).c_str());
  std::printf("groups %zu, tasks %zu, GFLOP %.3f, longest workload %zu bytes, import %.2f s\n",
              fused.groups.size(), tasks.size(), flops * 1e-9, longest, import_seconds);
  if (flags.output.empty()) return absl::OkStatus();

  start = std::chrono::steady_clock::now();
  CompileOptions options;
  options.choice = ScheduleChoice::kDefault;
  options.model_name = flags.model;
  std::vector<std::string> warnings;
  HEDDLE_ASSIGN_OR_RETURN(const std::string module,
                          CompileModel(onnx, import, target, {}, options, &warnings));
  for (const std::string& warning : warnings) std::printf("warning: %s\n", warning.c_str());
  std::printf("compile %.2f s (import included), module %.1f MB\n", SecondsSince(start),
              static_cast<double>(module.size()) * 1e-6);
  std::ofstream out(flags.output, std::ios::binary);
  out.write(module.data(), static_cast<std::streamsize>(module.size()));
  if (!out.flush()) return absl::UnavailableError(absl::StrCat("cannot write ", flags.output));
  return absl::OkStatus();
}

}  // namespace
}  // namespace heddle

int main(int argc, char** argv) {
  heddle::Flags flags;
  CLI::App app("Compiles a model with default schedules and says what that took.");
  app.add_option("model", flags.model, "Model file, as for submit")->required();
  app.add_option("-o,--output", flags.output, "Module to write (without: import only)");
  app.add_option("--threads", flags.threads, "Threads of the target")->check(CLI::Range(1, 256));
  app.add_option("--target", flags.target, "Target, as for submit");
  app.add_option("--shape", flags.import.shapes, "As for submit (repeatable)")
      ->allow_extra_args(false);
  app.add_option("--disable-pass", flags.import.disabled_passes, "As for submit (repeatable)")
      ->allow_extra_args(false);
  app.add_flag("--tasks", flags.print_tasks, "Print every distinct kernel");
  app.add_flag("--graph", flags.print_graph, "Print the optimised graph");
  app.add_option("--details", flags.details,
                 "Print program and schedule of the kernels whose label has this in it");
  if (const auto end = heddle::ParseCommandLine(&app, argc, argv)) return *end;
  const absl::Status status = heddle::Run(flags);
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
