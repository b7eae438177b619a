// heddle-bench-module: compiles a model from records in a file or from default schedules, without a
// service. Parts of the compiler can be left out to show what they are worth. Prints one JSON
// object about the module.
#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/command_documents.h"
#include "base/status_macros.h"
#include "client/commands/model_options.h"
#include "client/modules/model_file.h"
#include "client/record_file.h"
#include "compiler/codegen/backend.h"
#include "compiler/driver/choose_plan.h"
#include "compiler/driver/compile.h"
#include "compiler/plan/plan.h"
#include "compiler/runtime/module.h"

namespace heddle::bench {
namespace {

using nlohmann::json;

struct Flags {
  std::string model, output, records, mcpu = "native";
  client::ModelFlags import;
  std::string forest_form;  // empty: estimated
  int threads = 1;
  bool fusion = true;
  bool memory_plan = true;
  bool measured_plan = false;
};

std::vector<std::string> FormNames() {
  std::vector<std::string> names;
  for (const graph::ForestForm form : graph::kForestForms)
    names.emplace_back(graph::ForestFormName(form));
  return names;
}

// The form of each forest of a compiled model, by the name of its node.
absl::StatusOr<std::map<std::string, std::string>> FormsOf(const runtime::Manifest& manifest) {
  HEDDLE_ASSIGN_OR_RETURN(const plan::Plan plan, plan::ParsePlan(manifest.plan));
  std::map<std::string, std::string> forms;
  for (const auto& [node, form] : plan.forests) forms[node] = graph::ForestFormName(form);
  return forms;
}

// The fastest record of each task for exactly `target`, measured cold on such a CPU.
absl::StatusOr<std::map<std::string, BestRecord>> ReadRecords(const std::string& path,
                                                              const Target& target,
                                                              std::vector<std::string>* warnings) {
  std::map<std::string, BestRecord> best;
  if (path.empty()) return best;
  HEDDLE_ASSIGN_OR_RETURN(const std::vector<v1::Record> records,
                          client::ReadRecordFile(path, warnings));
  std::vector<std::string> others;  // not reported: a file may hold several targets
  for (const v1::Record& record :
       client::MatchingRecords(records, ToText(target), {target.cpu}, &others)) {
    BestRecord& known = best[record.workload_key()];
    if (known.median_ns == 0 || record.median_ns() < known.median_ns)
      known = {record.trace(), record.median_ns()};
  }
  return best;
}

// nullopt: every form is estimated.
absl::StatusOr<std::optional<graph::ForestForm>> ParseForm(const std::string& name) {
  if (name.empty()) return std::nullopt;
  const std::optional<graph::ForestForm> form = graph::ForestFormFromName(name);
  if (form.has_value()) return form;
  return absl::InvalidArgumentError(absl::StrCat(
      "forests have no form '", name, "'; the forms are ", absl::StrJoin(FormNames(), ", ")));
}

// The most memory that the process had at once.
double PeakRssMib() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024;  // Linux counts KiB
}

absl::Status Make(const Flags& flags) {
  Target target;
  target.threads = flags.threads;
  target.cpu = flags.mcpu;
  HEDDLE_ASSIGN_OR_RETURN(target, codegen::ResolveTarget(target));
  const absl::Time begin = MonotonicNow();
  HEDDLE_ASSIGN_OR_RETURN(const client::ModelFile model, client::OpenModel(flags.model));
  std::vector<std::string> warnings;
  HEDDLE_ASSIGN_OR_RETURN(const auto best, ReadRecords(flags.records, target, &warnings));
  HEDDLE_ASSIGN_OR_RETURN(const v1::ModelOptions imported_as,
                          client::MakeModelOptions(flags.import));
  ModelOptions options = client::FromProto(imported_as, &model);
  HEDDLE_ASSIGN_OR_RETURN(options.passes.forests.all, ParseForm(flags.forest_form));
  options.fuse.enabled = flags.fusion;
  options.share_memory = flags.memory_plan;
  CompileOptions compile;
  compile.model_name = flags.model;
  if (flags.measured_plan) {
    std::map<std::string, double> times;
    for (const auto& [key, record] : best) times[key] = record.median_ns;
    HEDDLE_ASSIGN_OR_RETURN(const PlanChoice choice,
                            ChoosePlan(model.onnx, options, target, times));
    compile.plan = choice.best().plan;
  }
  HEDDLE_ASSIGN_OR_RETURN(const std::string bytes,
                          CompileModel(model.onnx, options, target, best, compile, &warnings));
  const double convert_s = absl::ToDoubleSeconds(MonotonicNow() - begin);
  std::ofstream(flags.output, std::ios::binary) << bytes;
  HEDDLE_ASSIGN_OR_RETURN(const runtime::Module module, runtime::ReadModuleFile(flags.output));
  double flops = 0;  // of one inference
  for (const runtime::CallSpec& call : module.manifest.calls) {
    if (call.kernel >= 0) flops += module.manifest.kernels[call.kernel].flops;
  }
  int tuned = 0;
  bool winograd = false;
  for (const runtime::KernelSpec& kernel : module.manifest.kernels) {
    tuned += kernel.schedule == "tuned";
    winograd |= kernel.numerics.winograd;
  }
  HEDDLE_ASSIGN_OR_RETURN(const auto forests, FormsOf(module.manifest));
  std::printf("%s\n",
              json{{"target", ToText(target)},
                   {"kernels", module.manifest.kernels.size()},
                   {"calls", module.manifest.calls.size()},
                   {"flops", flops},
                   {"tuned", tuned},
                   {"winograd", winograd},
                   {"arena_bytes", module.manifest.arena_bytes},
                   {"unshared_bytes", module.manifest.unshared_bytes},
                   {"forests", forests},
                   {"forms", FormNames()},  // all that there are
                   {"convert_s", convert_s},
                   {"peak_rss_mib", PeakRssMib()},  // of this process, which has done nothing else
                   {"warnings", warnings}}
                  .dump()
                  .c_str());
  return absl::OkStatus();
}

}  // namespace
}  // namespace heddle::bench

int main(int argc, char** argv) {
  heddle::bench::Flags flags;
  CLI::App app(
      "Compiles a model from a file of records; bench/run.sh models and classical call it.");
  app.add_option("model", flags.model, "ONNX file, or a forest of XGBoost or LightGBM")->required();
  app.add_option("-o,--output", flags.output, "module to write")->required();
  app.add_option("--records", flags.records, "JSON lines; without: default schedules");
  app.add_option("--threads", flags.threads, "threads of a kernel")->check(CLI::Range(1, 256));
  app.add_option("--mcpu", flags.mcpu, "CPU that code is made for; default: this one");
  app.add_option("--shape", flags.import.shapes,
                 "shape of an input, or extent of a dimension: rows=1")
      ->allow_extra_args(false);
  app.add_option("--forest-form", flags.forest_form, "form of every forest that has it");
  app.add_flag("!--no-fusion", flags.fusion, "one kernel for each operator");
  app.add_flag("!--no-memory-plan", flags.memory_plan, "every value has memory of its own");
  app.add_flag("--measured-plan", flags.measured_plan, "choose the plan by the records");
  if (const auto end = heddle::ParseCommandLine(&app, argc, argv)) return *end;
  const absl::Status status = heddle::bench::Make(flags);
  if (status.ok()) return 0;
  std::fprintf(stderr, "heddle-bench-module: %s\n", std::string(status.message()).c_str());
  return 1;
}
