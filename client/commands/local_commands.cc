// Commands that need no service: zoo and inspect.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "base/files/output_file.h"
#include "client/commands/commands.h"
#include "client/modules/module_signature.h"
#include "client/modules/table_input.h"
#include "client/views/json.h"
#include "client/zoo/zoo.h"
#include "compiler/machine/measured_machine.h"
#include "compiler/runtime/module.h"

namespace heddle::client {

int WriteZooModel(const GlobalOptions& global, const std::string& name, const std::string& output,
                  uint64_t seed) {
  if (name.empty()) {
    for (const std::string& known : zoo::ZooNames()) {
      if (global.output.json)
        fmt::print("{}\n",
                   nlohmann::json{{"schema_version", kJsonSchemaVersion}, {"name", known}}.dump());
      else
        fmt::print("{}\n", known);
    }
    return kDone;
  }
  const absl::StatusOr<std::string> model = zoo::MakeZooModel(name, seed);
  if (!model.ok()) return Fail(absl::InvalidArgumentError(model.status().message()));
  const std::string path = output.empty() ? name + ".onnx" : output;
  if (const absl::Status written = WriteFile(path, *model); !written.ok()) return Fail(written);
  if (global.output.json) {
    fmt::print("{}\n", nlohmann::json{{"schema_version", kJsonSchemaVersion},
                                      {"name", name},
                                      {"file", path},
                                      {"bytes", model->size()}}
                           .dump());
  }
  // What went through a pipe or to a device is no file to tune.
  std::error_code ignored;
  const std::string next = std::filesystem::is_regular_file(path, ignored)
                               ? fmt::format("; next: heddle tune {} -o {}.heddle", path, name)
                               : "";
  fmt::print(stderr, "{}: {}, {}, seed {}{}\n", path, name,
             FormatBytes(static_cast<int64_t>(model->size())), seed, next);
  return kDone;
}

namespace {

nlohmann::json TensorsToJson(const std::vector<runtime::TensorSpec>& tensors, size_t count) {
  nlohmann::json list = nlohmann::json::array();
  for (size_t i = 0; i < count; ++i) {
    const runtime::TensorSpec& t = tensors[i];
    list.push_back({{"name", t.name}, {"dtype", t.dtype}, {"shape", t.shape}});
    if (t.text) list.back()["text"] = true;
    if (!t.columns.empty()) list.back()["columns"] = t.columns;
    if (!t.labels.empty()) list.back()["labels"] = t.labels;
  }
  return list;
}

// The names of a tensor's columns and labels, behind its type.
std::string NamesText(const runtime::TensorSpec& t) {
  std::string text;
  if (t.text) text += " texts";
  if (!t.columns.empty()) text += " columns " + SomeNames(t.columns);
  if (!t.labels.empty()) text += " labels " + SomeNames(t.labels);
  return text;
}

}  // namespace

int ShowModule(const GlobalOptions& global, const std::string& path) {
  const absl::StatusOr<runtime::Module> module = runtime::ReadModuleFile(path);
  if (!module.ok()) return Fail(module.status());
  const runtime::Manifest& manifest = module->manifest;
  if (global.output.json) {
    const absl::StatusOr<ModuleMaker> maker = MakerOfFile(global.server.tls_directory, path);
    nlohmann::json object = {
        {"schema_version", kJsonSchemaVersion},
        {"model", manifest.model},
        {"model_digest", manifest.model_digest},
        {"target", manifest.target},
        {"threads", manifest.threads},
        {"producer", manifest.producer},
        {"signed_by", maker.ok() ? ToText(maker->worker) : ""},
        {"machine", manifest.machine},
        {"arena_bytes", manifest.arena_bytes},
        {"unshared_bytes", manifest.unshared_bytes},
        {"inputs", TensorsToJson(manifest.inputs, manifest.inputs.size())},
        {"outputs", TensorsToJson(manifest.outputs, static_cast<size_t>(manifest.NumResults()))},
        {"independent_rows", manifest.independent_rows},
        {"calls", manifest.calls.size()},
        {"blocks", nlohmann::json::array()}};
    for (size_t b = 0; manifest.independent_rows && b < manifest.NumBlocks(); ++b)
      object["blocks"].push_back(
          {{"rows", manifest.RowsOf(b)}, {"calls", manifest.CallsOf(b).size()}});
    for (const runtime::KernelSpec& kernel : manifest.kernels) {
      object["kernels"].push_back({{"symbol", kernel.symbol},
                                   {"task", kernel.task},
                                   {"label", kernel.label},
                                   {"schedule", kernel.schedule},
                                   {"winograd", kernel.numerics.winograd},
                                   {"record_ns", kernel.record_ms * 1e6}});
    }
    fmt::print("{}\n", object.dump());
    return kDone;
  }
  // Whoever made the file chose its texts.
  fmt::print("model    {} ({})\ntarget   {}\nmade by  {}\n", Printable(manifest.model),
             Printable(manifest.model_digest.substr(0, 12)), Printable(manifest.target),
             Printable(manifest.producer));
  fmt::print("signed   by {}\n", SignatureText(global.server.tls_directory, path));
  if (const auto machine = machine::ParseMeasuredMachine(manifest.machine); machine.ok())
    fmt::print("machine  {}\n", machine::Summary(*machine));
  for (const runtime::TensorSpec& t : manifest.inputs)
    fmt::print("input    {}\n", Printable(fmt::format("{}: {}[{}]{}", t.name, t.dtype,
                                                      fmt::join(t.shape, ","), NamesText(t))));
  for (int i = 0; i < manifest.NumResults(); ++i) {
    const runtime::TensorSpec& t = manifest.outputs[static_cast<size_t>(i)];
    std::vector<std::string> extents;
    for (int64_t extent : t.shape) extents.push_back(fmt::format("{}", extent));
    for (const runtime::DimLength& length : t.lengths)
      extents[static_cast<size_t>(length.axis)].insert(0, "up to ");
    fmt::print("output   {}\n", Printable(fmt::format("{}: {}[{}]{}", t.name, t.dtype,
                                                      fmt::join(extents, ","), NamesText(t))));
  }
  if (manifest.independent_rows) {
    std::vector<int64_t> rows;
    for (size_t b = 0; b < manifest.NumBlocks(); ++b) rows.push_back(manifest.RowsOf(b));
    fmt::print("rows     any number, in blocks of {}\n", fmt::join(rows, ", "));
  }
  int64_t packed = 0, unpacked = 0;
  for (const runtime::PackedParam& param : manifest.packed) {
    packed += param.PackedBytes();
    unpacked += param.Bytes();
  }
  const auto param_bytes = static_cast<int64_t>(module->params->size());
  fmt::print("memory   {} parameters{}, {} activations ({} without sharing), {} code\n\n",
             FormatBytes(param_bytes),
             packed == 0
                 ? ""
                 : fmt::format(" ({} in the file)", FormatBytes(param_bytes - unpacked + packed)),
             FormatBytes(manifest.arena_bytes), FormatBytes(manifest.unshared_bytes),
             FormatBytes(static_cast<int64_t>(module->code.size())));
  const auto unmeasured =
      std::count_if(manifest.kernels.begin(), manifest.kernels.end(),
                    [](const runtime::KernelSpec& kernel) { return kernel.record_ms <= 0; });
  const bool blocks = manifest.NumBlocks() > 1;
  std::vector<std::string> header = {"kernel", "calls", "schedule", "recorded", "task"};
  if (blocks) header.insert(header.begin(), "rows");
  Table table(header);
  for (size_t b = 0; b < manifest.NumBlocks(); ++b) {
    std::map<int, int> calls;  // by kernel
    for (const runtime::CallSpec& call : manifest.CallsOf(b)) ++calls[call.kernel];
    for (const auto& [k, count] : calls) {
      const runtime::KernelSpec& kernel = manifest.kernels[static_cast<size_t>(k)];
      std::vector<std::string> row = {
          kernel.label, fmt::format("{}", count),
          kernel.schedule + (kernel.numerics.winograd ? ", winograd" : ""),
          FormatNs(kernel.record_ms * 1e6), kernel.task};
      if (blocks) row.insert(row.begin(), fmt::format("{}", manifest.RowsOf(b)));
      table.Add(row);
    }
  }
  fmt::print("{}", table.ToText(global.output.plain));
  if (unmeasured > 0) {
    fmt::print(stderr,
               "{} of {} kernels have no recorded time, as default schedules have none that tuning "
               "did not measure; next: heddle run {} --profile\n",
               unmeasured, manifest.kernels.size(), Printable(path));
  }
  return kDone;
}

}  // namespace heddle::client
