#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "base/status_macros.h"
#include "client/commands/commands.h"
#include "client/modules/npy.h"
#include "client/modules/output_check.h"
#include "client/modules/profile.h"
#include "client/views/json.h"
#include "compiler/measure/in_turns.h"

namespace heddle::client {
namespace {

using runtime::Executor;
using runtime::TensorSpec;

std::string ShapeText(const std::vector<int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ","));
}

// The threads to run with: `wanted`, or as tuned for 0. A kernel never uses more than it was
// compiled for.
int UsedThreads(int wanted, const runtime::Manifest& manifest) {
  return wanted > 0 ? std::min(wanted, manifest.threads) : manifest.threads;
}

struct Loaded {
  runtime::Module module;
  Executor::Options options;
};

absl::StatusOr<Loaded> LoadModule(const std::string& path, int threads) {
  Loaded loaded;
  HEDDLE_ASSIGN_OR_RETURN(loaded.module, runtime::ReadModuleFile(path));
  loaded.options.threads = UsedThreads(threads, loaded.module.manifest);
  if (threads > loaded.options.threads) {
    fmt::print(stderr, "{}: made for {} thread{}, so {} used, not {}\n", path,
               loaded.options.threads, loaded.options.threads == 1 ? "" : "s",
               loaded.options.threads == 1 ? "1 is" : "these are", threads);
  }
  return loaded;
}

absl::StatusOr<std::unique_ptr<Executor>> MakeExecutor(const Loaded& loaded,
                                                       const std::string& path) {
  absl::StatusOr<std::unique_ptr<Executor>> executor =
      Executor::Create(loaded.module, loaded.options);
  if (!executor.ok()) {
    return absl::Status(executor.status().code(),
                        fmt::format("{}: {}", path, std::string(executor.status().message())));
  }
  return executor;
}

// Inputs in the module's order: from the given files, otherwise random.
absl::StatusOr<std::vector<std::string>> GatherInputs(const RunOptions& options,
                                                      const std::vector<TensorSpec>& specs) {
  std::vector<std::string> paths(specs.size());
  size_t next = 0;
  for (const std::string& argument : options.inputs) {
    size_t index = next;
    std::string path = argument;
    for (size_t i = 0; i < specs.size(); ++i) {
      if (argument.rfind(specs[i].name + "=", 0) == 0) {
        index = i;
        path = argument.substr(specs[i].name.size() + 1);
      }
    }
    if (path == argument) ++next;
    if (index >= specs.size()) {
      return absl::InvalidArgumentError(
          fmt::format("too many inputs: the model has {}", specs.size()));
    }
    paths[index] = path;
  }
  std::vector<std::string> inputs;
  for (size_t i = 0; i < specs.size(); ++i) {
    if (paths[i].empty()) {
      inputs.push_back(RandomTensor(specs[i], options.seed + i));
      continue;
    }
    HEDDLE_ASSIGN_OR_RETURN(NpyArray array, ReadNpyFile(paths[i]));
    if (array.dtype != specs[i].dtype || array.shape != specs[i].shape) {
      return absl::InvalidArgumentError(fmt::format(
          "{}: {}{} where input '{}' is {}{}", paths[i], array.dtype, ShapeText(array.shape),
          specs[i].name, specs[i].dtype, ShapeText(specs[i].shape)));
    }
    inputs.push_back(std::move(array.bytes));
  }
  return inputs;
}

absl::Status WriteOutputs(const Executor& executor, const std::string& output) {
  const std::vector<TensorSpec>& specs = executor.manifest().outputs;
  const auto results = static_cast<size_t>(executor.manifest().NumResults());
  const bool directory = results > 1 || std::filesystem::is_directory(output);
  if (directory) {
    std::error_code error;
    std::filesystem::create_directories(output, error);
    if (error)
      return absl::InvalidArgumentError(
          fmt::format("cannot make directory '{}': {}", output, error.message()));
  }
  for (size_t i = 0; i < results; ++i) {
    const int index = static_cast<int>(i);
    const std::string path = directory ? output + "/" + NpyFileName(specs[i].name, index) : output;
    const NpyArray array{specs[i].dtype, executor.OutputShape(index), executor.Output(index)};
    HEDDLE_RETURN_IF_ERROR(WriteFile(path, SerializeNpy(array)));
    fmt::print(stderr, "{}: {}{}\n", path, array.dtype, ShapeText(array.shape));
  }
  return absl::OkStatus();
}

void Summarise(const Executor& executor, const OutputOptions& output) {
  nlohmann::json list = nlohmann::json::array();
  for (int i = 0; i < executor.manifest().NumResults(); ++i) {
    const TensorSpec& spec = executor.manifest().outputs[static_cast<size_t>(i)];
    const std::vector<int64_t> shape = executor.OutputShape(i);
    const std::vector<double> values = ToDoubles(executor.Output(i), spec.dtype);
    if (values.empty()) {
      if (output.json)
        list.push_back({{"name", spec.name}, {"dtype", spec.dtype}, {"shape", shape}});
      else
        fmt::print("{}: {}{}  no elements\n", spec.name, spec.dtype, ShapeText(shape));
      continue;
    }
    const auto [low, high] = std::minmax_element(values.begin(), values.end());
    const int64_t argmax = high - values.begin();
    if (output.json) {
      list.push_back({{"name", spec.name},
                      {"dtype", spec.dtype},
                      {"shape", shape},
                      {"min", *low},
                      {"max", *high},
                      {"argmax", argmax}});
    } else {
      fmt::print("{}: {}{}  min {:.6g}  max {:.6g} at {}\n", spec.name, spec.dtype,
                 ShapeText(shape), *low, *high, argmax);
    }
  }
  if (output.json)
    fmt::print("{}\n",
               nlohmann::json{{"schema_version", kJsonSchemaVersion}, {"outputs", list}}.dump());
}

// Short column names: the parts in which the file names differ.
std::string ColumnName(const runtime::Manifest& manifest, const std::string& path,
                       std::map<std::string, int>& taken) {
  std::map<std::string, int> kinds;
  for (const runtime::KernelSpec& kernel : manifest.kernels) ++kinds[kernel.schedule];
  std::string name = kinds.contains("tuned") ? "tuned"
                     : kinds.size() == 1     ? kinds.begin()->first
                                             : "mixed";
  if (++taken[name] > 1) name = std::filesystem::path(path).filename().string();
  return name;
}

int UsesOf(const TaskTiming& task) { return *std::max_element(task.uses.begin(), task.uses.end()); }

// Of one use, per module.
std::vector<double> TimesOf(const TaskTiming& task) {
  std::vector<double> times;
  for (size_t m = 0; m < task.uses.size(); ++m) times.push_back(task.Ns(m));
  return times;
}

int Evaluate(const GlobalOptions& global, const RunOptions& options,
             const std::vector<Loaded>& modules, const std::vector<std::string>& inputs) {
  std::vector<std::string> paths = {options.module};
  paths.insert(paths.end(), options.against.begin(), options.against.end());
  std::vector<std::string> names;
  std::map<std::string, int> taken;
  std::vector<Contestant> contestants;
  for (size_t m = 0; m < modules.size(); ++m) {
    const runtime::Manifest& manifest = modules[m].module.manifest;
    if (manifest.model_digest != modules[0].module.manifest.model_digest) {
      fmt::print(stderr, "warning: {} holds another model than {}\n", paths[m], paths[0]);
    }
    names.push_back(ColumnName(manifest, paths[m], taken));
    contestants.push_back({&modules[m].module, modules[m].options, inputs});
  }
  const absl::StatusOr<std::vector<ModuleTiming>> timed =
      TimeInTurns(contestants, {.rounds = options.rounds, .stop = [] { return Interrupted(); }});
  if (!timed.ok()) return Fail(timed.status());
  const std::vector<ModuleTiming>& timings = *timed;
  if (timings[0].samples_ns.empty()) return kInterrupted;
  const std::vector<TaskTiming> tasks = TimeByTask(contestants, timings);
  const runtime::Manifest& manifest = modules[0].module.manifest;
  const int threads = UsedThreads(options.threads, manifest);
  if (global.output.json) {
    nlohmann::json object = {{"schema_version", kJsonSchemaVersion},
                             {"model", manifest.model},
                             {"target", manifest.target},
                             {"threads", threads},
                             {"cpu", CpuName()},
                             {"rounds", options.rounds}};
    for (size_t m = 0; m < modules.size(); ++m) {
      object["modules"].push_back({{"file", paths[m]},
                                   {"schedules", names[m]},
                                   {"min_ns", timings[m].Percentile(0)},
                                   {"median_ns", timings[m].Median()},
                                   {"p90_ns", timings[m].Percentile(90)},
                                   {"p99_ns", timings[m].Percentile(99)},
                                   {"samples_ns", timings[m].samples_ns}});
    }
    for (const TaskTiming& task : tasks) {
      object["tasks"].push_back({{"key", task.task},
                                 {"label", task.label},
                                 {"uses", UsesOf(task)},
                                 {"flops", task.flops},
                                 {"ns", TimesOf(task)}});
    }
    fmt::print("{}\n", object.dump());
    return kDone;
  }
  // Slowest first: naive, default, tuned.
  std::vector<size_t> order(modules.size());
  for (size_t m = 0; m < order.size(); ++m) order[m] = m;
  std::rotate(order.begin(), order.begin() + 1, order.end());
  std::vector<std::string> header = {"task", "uses"};
  for (size_t m : order) header.push_back(names[m]);
  header.push_back("GFLOP/s");
  if (order.size() > 1) header.push_back(fmt::format("{} / {}", names[order[0]], names[0]));
  Table table(header);
  const auto add_row = [&](const std::string& label, const std::string& uses,
                           const std::vector<double>& ns, double flops) {
    std::vector<std::string> row = {label, uses};
    for (size_t m : order) row.push_back(FormatNs(ns[m]));
    row.push_back(FormatGflops(flops, ns[0]));
    if (order.size() > 1) row.push_back(ns[0] > 0 ? FormatRatio(ns[order[0]] / ns[0]) : "-");
    table.Add(row);
  };
  double flops = 0;
  for (const TaskTiming& task : tasks) {
    add_row(task.label, fmt::format("{}", UsesOf(task)), TimesOf(task), task.flops);
    flops += task.flops * UsesOf(task);
  }
  table.AddRule();
  std::vector<double> medians;
  for (const ModuleTiming& timing : timings) medians.push_back(timing.Median());
  add_row("whole model " + manifest.model, "1", medians, flops);
  fmt::print("{}\n", table.ToText(global.output.plain));
  for (size_t m : order) {
    fmt::print("{}: min {}  median {}  p90 {}  p99 {}\n", names[m],
               FormatNs(timings[m].Percentile(0)), FormatNs(timings[m].Median()),
               FormatNs(timings[m].Percentile(90)), FormatNs(timings[m].Percentile(99)));
  }
  fmt::print(
      "{} rounds in turns, each module loaded anew, one warm-up run, then at least 50 ms; {} "
      "thread{}; {}; "
      "{}\n",
      options.rounds, threads, threads == 1 ? "" : "s", CpuName(), manifest.target);
  fmt::print("memory: {} activations ({} without sharing), {} workspace\n",
             FormatBytes(manifest.arena_bytes), FormatBytes(manifest.unshared_bytes),
             FormatBytes(manifest.workspace_bytes));
  return kDone;
}

}  // namespace

int RunModule(const GlobalOptions& global, const RunOptions& options) {
  std::vector<Loaded> modules;
  std::vector<std::string> paths = {options.module};
  paths.insert(paths.end(), options.against.begin(), options.against.end());
  for (const std::string& path : paths) {
    absl::StatusOr<Loaded> loaded = LoadModule(path, options.threads);
    if (!loaded.ok()) return Fail(loaded.status());
    modules.push_back(*std::move(loaded));
  }
  absl::StatusOr<std::unique_ptr<Executor>> made = MakeExecutor(modules[0], options.module);
  if (!made.ok()) return Fail(made.status());
  Executor& executor = **made;
  const absl::StatusOr<std::vector<std::string>> inputs =
      GatherInputs(options, executor.manifest().inputs);
  if (!inputs.ok()) return Fail(inputs.status());
  for (size_t i = 0; i < inputs->size(); ++i) {
    std::memcpy(executor.InputData(static_cast<int>(i)), (*inputs)[i].data(), (*inputs)[i].size());
  }
  if (const absl::Status ran = executor.Run(); !ran.ok()) return Fail(ran);
  if (!options.output.empty()) {
    if (const absl::Status written = WriteOutputs(executor, options.output); !written.ok())
      return Fail(written);
  } else if (!options.evaluate && !options.profile && options.check.empty()) {
    Summarise(executor, global.output);
  }
  if (!options.check.empty()) {
    const int code = CheckAgainstInterpreter(options, *inputs, executor, global.output);
    if (code != kDone) return code;
  }
  if (options.profile) {
    const int threads = UsedThreads(options.threads, executor.manifest());
    const int code = PrintProfile(executor, threads, options.rounds, global.output);
    if (code != kDone) return code;
  }
  made->reset();  // its memory may come to be that of a module to time
  return options.evaluate || !options.against.empty() ? Evaluate(global, options, modules, *inputs)
                                                      : kDone;
}

}  // namespace heddle::client
