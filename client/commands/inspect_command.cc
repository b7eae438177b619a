// heddle inspect FILE: a module, or an ONNX model before anything is tuned.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "absl/strings/str_replace.h"
#include "client/commands/commands.h"
#include "client/commands/model_options.h"
#include "client/modules/model_file.h"
#include "client/views/json.h"
#include "client/views/tuning_work.h"
#include "compiler/codegen/backend.h"
#include "compiler/driver/compile.h"
#include "compiler/graph/fusion/memory_plan.h"
#include "compiler/onnx/summary.h"

namespace heddle::client {
namespace {

using graph::OnnxSummary;

constexpr int kTrialsPerTask = 64;  // the default of `heddle tune`

// What compilation makes of a model.
struct Prepared {
  TuningWork work;
  int64_t parameter_bytes = 0, activation_bytes = 0;
};

// A model that was looked at. `problem` tells why `prepared` is empty.
struct Inspection {
  OnnxSummary summary;
  std::map<std::string, std::string> input_values;      // of --input-value
  std::map<std::string, std::vector<int64_t>> guessed;  // shapes that nobody gave
  absl::Status problem;
  std::optional<Prepared> prepared;
};

absl::StatusOr<Prepared> Prepare(const std::string& model, const heddle::ModelOptions& options) {
  absl::StatusOr<graph::FusedGraph> fused = PrepareModel(model, options);
  if (!fused.ok()) return fused.status();
  const absl::StatusOr<Target> target = codegen::ResolveTarget({});
  if (!target.ok()) return target.status();
  const absl::StatusOr<machine::TargetInfo> info = codegen::DescribeTarget(*target);
  if (!info.ok()) return info.status();
  Prepared prepared{WorkOf(*fused, *info, kTrialsPerTask), 0, 0};
  for (const auto& [value, data] : fused->graph.constants)
    prepared.parameter_bytes += static_cast<int64_t>(data.bytes->size());
  prepared.activation_bytes = graph::PlanMemory(*fused).arena_bytes;
  return prepared;
}

// A word as a shell takes it. Names of inputs are any text.
std::string ShellWord(const std::string& word) {
  constexpr std::string_view kPlain = "=,.:/_-+%";
  const bool plain = std::all_of(word.begin(), word.end(), [&](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || kPlain.find(c) != std::string_view::npos;
  });
  return plain ? word : "'" + absl::StrReplaceAll(word, {{"'", "'\\''"}}) + "'";
}

std::string ShapeFlags(const std::map<std::string, std::vector<int64_t>>& shapes) {
  std::string text;
  for (const auto& [name, shape] : shapes)
    text += " --shape " + ShellWord(fmt::format("{}={}", name, fmt::join(shape, "x")));
  return text;
}

nlohmann::json InspectionJson(const Inspection& found) {
  const OnnxSummary& s = found.summary;
  nlohmann::json object = {{"schema_version", kJsonSchemaVersion},
                           {"producer", s.producer},
                           {"ir_version", s.ir_version},
                           {"functions", s.functions},
                           {"parameters", s.parameters},
                           {"parameter_bytes", s.parameter_bytes},
                           {"bytes_by_type", s.bytes_by_type},
                           {"opsets", nlohmann::json::array()},
                           {"operators", nlohmann::json::array()},
                           {"guessed_shapes", nlohmann::json::object()},
                           {"input_values", nlohmann::json::object()},
                           {"problem", found.problem.ok() ? "" : found.problem.message()}};
  for (const auto& opset : s.opsets)
    object["opsets"].push_back({{"domain", opset.domain}, {"version", opset.version}});
  for (const auto& [kind, list] : {std::pair{"inputs", &s.inputs}, {"outputs", &s.outputs}}) {
    object[kind] = nlohmann::json::array();
    for (const OnnxSummary::Value& value : *list)
      object[kind].push_back({{"name", value.name}, {"type", value.type}, {"shape", value.shape}});
  }
  for (const OnnxSummary::Operator& op : s.operators) {
    object["operators"].push_back({{"name", op.name},
                                   {"domain", op.domain},
                                   {"nodes", op.nodes},
                                   {"supported", op.known},
                                   {"limits", op.limits}});
  }
  for (const auto& [name, shape] : found.guessed) object["guessed_shapes"][name] = shape;
  for (const auto& [name, value] : found.input_values) object["input_values"][name] = value;
  if (found.prepared) {
    object["flops"] = found.prepared->work.flops;
    object["kernels"] = found.prepared->work.kernels;
    object["tasks"] = TasksToJson(found.prepared->work);
    object["module_parameter_bytes"] = found.prepared->parameter_bytes;
    object["activation_bytes"] = found.prepared->activation_bytes;
  } else {
    for (const char* field :
         {"flops", "kernels", "tasks", "module_parameter_bytes", "activation_bytes"})
      object[field] = nullptr;
  }
  return object;
}

// `fixed` holds the inputs that are constants, with their values.
void PrintValues(const char* label, const std::vector<OnnxSummary::Value>& values,
                 const std::map<std::string, std::string>& fixed) {
  for (const OnnxSummary::Value& value : values) {
    const auto is = fixed.find(value.name);
    fmt::print("{:<11}{}\n", label,
               Printable(fmt::format("{}: {} {}{}", value.name, value.type, value.shape,
                                     is == fixed.end() ? "" : " = " + is->second)));
  }
}

void PrintParameters(const OnnxSummary& s) {
  fmt::print("parameters {} in {}", s.parameters, FormatBytes(s.parameter_bytes));
  std::vector<std::string> parts;
  for (const auto& [type, bytes] : s.bytes_by_type) {
    if (bytes > 0) parts.push_back(fmt::format("{} {}", type, FormatBytes(bytes)));
  }
  if (!parts.empty()) fmt::print(": {}", Printable(fmt::format("{}", fmt::join(parts, ", "))));
  fmt::print("\n");
}

void PrintOperators(const GlobalOptions& global, const OnnxSummary& s) {
  Table table({"operator", "nodes", "supported"});
  for (const OnnxSummary::Operator& op : s.operators) {
    const std::string name = op.domain.empty() ? op.name : op.domain + "." + op.name;
    const std::string known = !op.known           ? "no"
                              : op.limits.empty() ? "yes"
                                                  : "yes, but not: " + op.limits;
    table.Add({name, fmt::format("{}", op.nodes), known});
  }
  fmt::print("\n{}\n", table.ToText(global.output.plain));
}

void PrintInspection(const GlobalOptions& global, const std::string& path,
                     const Inspection& found) {
  const OnnxSummary& s = found.summary;
  fmt::print("model      {}{}{}\n", Printable(path), s.producer.empty() ? "" : ", made by ",
             Printable(s.producer));
  std::vector<std::string> opsets;
  for (const auto& opset : s.opsets)
    opsets.push_back(fmt::format("{} {}", opset.domain, opset.version));
  fmt::print("opsets     {}\n", Printable(fmt::format("{}", fmt::join(opsets, ", "))));
  PrintValues("input", s.inputs, found.input_values);
  PrintValues("output", s.outputs, {});
  PrintParameters(s);
  if (s.functions > 0) fmt::print("functions  {}\n", s.functions);
  PrintOperators(global, s);
  if (!found.prepared) return;
  const TuningWork& work = found.prepared->work;
  if (!found.guessed.empty()) {
    fmt::print("Dimensions are open. The figures below are for a guess:{}\n\n",
               Printable(ShapeFlags(found.guessed)));
  }
  fmt::print("arithmetic {}\n", FormatFlops(work.flops));
  fmt::print("memory     {} parameters, {} activations\n",
             FormatBytes(found.prepared->parameter_bytes),
             FormatBytes(found.prepared->activation_bytes));
  fmt::print(
      "tuning     {} tasks, {} kernel calls; {} trials for each task are {} in all, about {} on "
      "one device slot\n",
      work.tasks.size(), work.kernels, kTrialsPerTask, work.trials,
      HumanDuration(DurationOf(work, 1)));
  if (global.output.verbosity > 0) fmt::print("\n{}", WorkTable(work).ToText(global.output.plain));
}

int InspectModel(const GlobalOptions& global, const std::string& path, const ModelFlags& flags) {
  const absl::StatusOr<ModelFile> opened = OpenModelShown(path, CanAnimate(global.output));
  if (!opened.ok()) return Fail(opened.status());
  const std::string& model = opened->onnx;
  absl::StatusOr<OnnxSummary> summary = graph::SummarizeOnnx(model);
  if (!summary.ok()) return Fail(summary.status());
  const absl::StatusOr<v1::ModelOptions> options = MakeModelOptions(flags);
  if (!options.ok()) return Fail(options.status());
  heddle::ModelOptions chosen = FromProto(*options, &*opened);
  Inspection found{
      *std::move(summary), chosen.import.input_values, {}, absl::OkStatus(), std::nullopt};
  if (auto guessed = graph::LikelyShapes(model, chosen.import); guessed.ok()) {
    found.guessed = *std::move(guessed);
    for (const auto& [name, shape] : found.guessed) chosen.import.shapes.emplace(name, shape);
  }
  absl::StatusOr<Prepared> prepared = Prepare(model, chosen);
  if (prepared.ok())
    found.prepared = *std::move(prepared);
  else
    found.problem = prepared.status();
  if (global.output.json)
    fmt::print("{}\n", InspectionJson(found).dump());
  else
    PrintInspection(global, path, found);
  std::fflush(stdout);
  if (!found.problem.ok()) return Fail(found.problem);
  if (!global.output.json) {
    std::string given;
    for (const std::string& shape : flags.shapes) given += " --shape " + ShellWord(shape);
    for (const std::string& value : flags.input_values)
      given += " --input-value " + ShellWord(value);
    fmt::print(stderr, "next: heddle tune {} -o model.heddle\n",
               Printable(ShellWord(path) + given + ShapeFlags(found.guessed)));
  }
  return kDone;
}

}  // namespace

int Inspect(const GlobalOptions& global, const std::string& path, const ModelFlags& flags) {
  if (!HoldsModule(path)) return InspectModel(global, path, flags);
  if (!flags.shapes.empty() || !flags.input_values.empty())
    return Fail(absl::InvalidArgumentError(fmt::format(
        "'{}' is a module, whose inputs are fixed: leave --shape and --input-value out", path)));
  return ShowModule(global, path);
}

}  // namespace heddle::client
