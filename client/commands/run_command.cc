#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "absl/strings/str_replace.h"
#include "base/files/output_file.h"
#include "base/status_macros.h"
#include "client/commands/commands.h"
#include "client/modules/module_signature.h"
#include "client/modules/npy.h"
#include "client/modules/npz.h"
#include "client/modules/output_check.h"
#include "client/modules/profile.h"
#include "client/modules/run_rows.h"
#include "client/modules/streams.h"
#include "client/modules/table_input.h"
#include "client/views/json.h"
#include "client/views/row_table.h"
#include "compiler/measure/in_turns.h"

namespace heddle::client {
namespace {

using runtime::Executor;
using runtime::TensorSpec;

std::string ShapeText(const std::vector<int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ","));
}

std::string RowsText(int64_t rows) { return fmt::format("{} row{}", rows, rows == 1 ? "" : "s"); }

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
  absl::StatusOr<runtime::Module> module = runtime::ReadModuleFile(path);
  if (absl::IsInvalidArgument(module.status()) && !path.ends_with(".heddle")) {
    return absl::InvalidArgumentError(
        fmt::format("{}; if it is a model, `heddle tune {} -o {}` makes a module of it",
                    std::string(module.status().message()), path,
                    std::filesystem::path(path).stem().string() + ".heddle"));
  }
  HEDDLE_RETURN_IF_ERROR(module.status());
  loaded.module = *std::move(module);
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

bool IsCsv(const std::string& path) { return path.ends_with(".csv"); }

// What a file holds for one input, or for several.
struct FileInputs {
  int64_t rows = 0;
  std::vector<std::string> bytes;
};

bool IsNpz(const std::string& path) { return path.ends_with(".npz"); }

// How an array of NumPy gets an element type.
std::string CastTo(const std::string& dtype) {
  if (dtype == "bf16") return "NumPy has no such type, so leave the input out: it is random then";
  const char* const kind = dtype[0] == 'f' ? "float" : dtype[0] == 'u' ? "uint" : "int";
  const std::string name = dtype == "bool" ? dtype : kind + dtype.substr(1);
  return fmt::format("save it with x.astype('{}')", name);
}

absl::StatusOr<FileInputs> TakeArray(NpyArray array, const std::string& path,
                                     const TensorSpec& spec, bool any_rows) {
  std::vector<int64_t> shape = array.shape;
  if (any_rows && !shape.empty() && shape[0] > 0) shape[0] = spec.shape[0];
  if (array.dtype != spec.dtype || shape != spec.shape) {
    return absl::InvalidArgumentError(
        fmt::format("{}: {}{} where input '{}' is {}{}{}; {}", path, array.dtype,
                    ShapeText(array.shape), spec.name, spec.dtype, ShapeText(spec.shape),
                    any_rows ? ", or as many rows as you like" : "",
                    shape != spec.shape ? "give an array of that shape" : CastTo(spec.dtype)));
  }
  return FileInputs{any_rows ? array.shape[0] : 0, {std::move(array.bytes)}};
}

// The names of the inputs, for people.
std::string InputNames(const std::vector<TensorSpec>& specs) {
  std::vector<std::string> names;
  for (const TensorSpec& spec : specs) names.push_back(spec.name);
  return SomeNames(names);
}

// The array of a file that belongs to the input: that of its name. In a file with one array, that one.
absl::StatusOr<FileInputs> ReadArrayInput(const std::string& path, const TensorSpec& spec,
                                          bool any_rows) {
  if (!IsNpz(path)) {
    HEDDLE_ASSIGN_OR_RETURN(NpyArray array, ReadNpyFile(path));
    return TakeArray(std::move(array), path, spec, any_rows);
  }
  HEDDLE_ASSIGN_OR_RETURN(auto arrays, ReadNpzFile(path));
  const auto found = arrays.size() == 1 ? arrays.begin() : arrays.find(spec.name);
  if (found != arrays.end()) {
    return TakeArray(std::move(found->second), fmt::format("{} ({})", path, found->first), spec,
                     any_rows);
  }
  std::vector<std::string> names;
  for (const auto& [name, array] : arrays) names.push_back(name);
  return absl::InvalidArgumentError(
      fmt::format("{}: no array is called '{}'; it has {}", path, spec.name, SomeNames(names)));
}

// Says on stderr what was taken from the file.
absl::StatusOr<FileInputs> ReadCsvInputs(const std::string& path,
                                         const std::vector<TensorSpec>& specs, HeaderRule header,
                                         bool any_rows) {
  HEDDLE_ASSIGN_OR_RETURN(TableInput table, ReadTableFile(path, specs, header));
  for (const TensorSpec& spec : specs) {
    if (any_rows || spec.shape[0] == table.rows) continue;
    return absl::InvalidArgumentError(
        fmt::format("{}: {} rows where input '{}' is {}{}, and rows are not independent; give {}",
                    path, table.rows, spec.name, spec.dtype, ShapeText(spec.shape), spec.shape[0]));
  }
  const bool asked = header != HeaderRule::kAuto;
  fmt::print(stderr, "{}: {}, columns by {}{}{}\n", path, RowsText(table.rows),
             table.by_name ? "name" : "position",
             table.by_name  ? ""
             : table.header ? "; the first line is a header"
                            : "; there is no header",
             table.by_name || asked             ? ""
             : table.numbered && table.header   ? " (--header no: it is a row)"
             : table.numbered                   ? " (--header yes: the first line, 0,1,.., is one)"
             : table.all_texts && !table.header ? " (--header yes: the first line is one)"
                                                : "");
  if (!table.unused.empty()) {
    fmt::print(stderr, "warning: {}: columns that the model does not have are ignored: {}\n", path,
               SomeNames(table.unused));
  }
  return FileInputs{any_rows ? table.rows : 0, std::move(table.bytes)};
}

// Inputs in the module's order: from the given files, otherwise random. A CSV file without a name is for all inputs
// that have no file of their own.
absl::StatusOr<GivenInputs> GatherInputs(const RunOptions& options,
                                         const runtime::Manifest& manifest) {
  if (options.rows > 0 && !manifest.independent_rows) {
    return absl::InvalidArgumentError(fmt::format(
        "--rows {}: the rows of {} depend on each other, so their number is fixed; leave it out",
        options.rows, manifest.model));
  }
  if (options.rows > 0 && !options.inputs.empty()) {
    return absl::InvalidArgumentError(
        fmt::format("--rows {} is for random inputs, and --input {} has its own rows; give one of "
                    "them",
                    options.rows, options.inputs[0]));
  }
  const std::vector<TensorSpec>& specs = manifest.inputs;
  if (options.rows > 0) {
    int64_t row_bytes = 0;
    for (const TensorSpec& spec : specs) row_bytes += spec.SizeBytes() / spec.shape[0];
    const int64_t most = kMostInputBytes / std::max<int64_t>(row_bytes, 1);
    if (options.rows > most) {
      return absl::InvalidArgumentError(
          fmt::format("--rows {}: more than {} bytes of inputs; give at most {}", options.rows,
                      kMostInputBytes, RowsText(most)));
    }
  }
  if (options.header != HeaderRule::kAuto &&
      std::none_of(options.inputs.begin(), options.inputs.end(), IsCsv)) {
    return absl::InvalidArgumentError(
        "--header yes or no is for .csv files, and no --input is one; leave it out");
  }
  std::vector<std::string> paths(specs.size());
  std::string table;
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
    if (path == argument && IsCsv(path)) {
      if (!table.empty()) {
        return absl::InvalidArgumentError(fmt::format(
            "{} and {} are both for all inputs; give one table, or name=FILE.csv for each input",
            table, path));
      }
      table = path;
      continue;
    }
    if (path == argument && IsNpz(path) && specs.size() > 1) {
      HEDDLE_ASSIGN_OR_RETURN(const auto arrays, ReadNpzFile(path));
      for (const auto& [name, array] : arrays) {
        const auto of = std::find_if(specs.begin(), specs.end(),
                                     [&](const TensorSpec& spec) { return spec.name == name; });
        if (of == specs.end()) {
          return absl::InvalidArgumentError(
              fmt::format("{}: the array '{}' is no input of {}; its inputs are {}", path, name,
                          manifest.model, InputNames(specs)));
        }
        paths[static_cast<size_t>(of - specs.begin())] = path;
      }
      continue;
    }
    if (path == argument) {
      // A name that no input has is more likely than a file with '=' in its name.
      const size_t equals = argument.find('=');
      std::error_code ignored;
      if (equals != std::string::npos && !std::filesystem::exists(argument, ignored)) {
        return absl::InvalidArgumentError(
            fmt::format("--input {}: {} has no input '{}'; its inputs are {}", argument,
                        manifest.model, argument.substr(0, equals), InputNames(specs)));
      }
      ++next;
    }
    if (index >= specs.size()) {
      return absl::InvalidArgumentError(fmt::format("--input {}: too many inputs; {} has {}: {}",
                                                    argument, manifest.model, specs.size(),
                                                    InputNames(specs)));
    }
    paths[index] = path;
  }
  GivenInputs inputs{std::vector<std::string>(specs.size()), 0};
  std::string rows_of;  // the file that tells how many rows there are
  // Puts what a file holds into these inputs.
  const auto take = [&](const std::string& path, const std::vector<size_t>& of,
                        absl::StatusOr<FileInputs> file) -> absl::Status {
    HEDDLE_RETURN_IF_ERROR(file.status());
    if (!rows_of.empty() && file->rows != inputs.rows) {
      return absl::InvalidArgumentError(fmt::format("{} has {} rows and {} has {}; give as many",
                                                    rows_of, inputs.rows, path, file->rows));
    }
    inputs.rows = file->rows;
    rows_of = path;
    for (size_t i = 0; i < of.size(); ++i) inputs.bytes[of[i]] = std::move(file->bytes[i]);
    return absl::OkStatus();
  };
  std::vector<size_t> open;
  for (size_t i = 0; i < specs.size(); ++i) {
    if (paths[i].empty()) {
      open.push_back(i);
      continue;
    }
    HEDDLE_RETURN_IF_ERROR(
        take(paths[i], {i},
             IsCsv(paths[i])
                 ? ReadCsvInputs(paths[i], {specs[i]}, options.header, manifest.independent_rows)
                 : ReadArrayInput(paths[i], specs[i], manifest.independent_rows)));
  }
  if (!table.empty()) {
    if (open.empty())
      return absl::InvalidArgumentError(
          fmt::format("{}: the model has no input without a file", table));
    std::vector<TensorSpec> of_table;
    for (size_t i : open) of_table.push_back(specs[i]);
    HEDDLE_RETURN_IF_ERROR(take(
        table, open, ReadCsvInputs(table, of_table, options.header, manifest.independent_rows)));
    open.clear();
  }
  if (manifest.independent_rows && rows_of.empty())
    inputs.rows = options.rows > 0 ? options.rows : specs[0].shape[0];
  for (size_t i : open) {
    TensorSpec spec = specs[i];
    if (manifest.independent_rows) spec.shape[0] = inputs.rows;
    inputs.bytes[i] = RandomTensor(spec, options.seed + i);
  }
  if (!open.empty()) {
    std::vector<TensorSpec> random;
    for (size_t i : open) random.push_back(specs[i]);
    fmt::print(stderr, "random data for {} (seed {}; --input NAME=FILE.npy gives data)\n",
               InputNames(random), options.seed);
  }
  return inputs;
}

absl::Status WriteOutputs(const std::vector<TensorSpec>& specs,
                          const std::vector<NpyArray>& results, const std::string& output) {
  const bool directory = results.size() > 1 || std::filesystem::is_directory(output);
  if (directory) {
    std::error_code error;
    std::filesystem::create_directories(output, error);
    if (error)
      return absl::InvalidArgumentError(
          fmt::format("cannot make directory '{}': {}", output, error.message()));
  }
  for (size_t i = 0; i < results.size(); ++i) {
    const std::string path =
        directory ? output + "/" + NpyFileName(specs[i].name, static_cast<int>(i)) : output;
    HEDDLE_RETURN_IF_ERROR(WriteFile(path, SerializeNpy(results[i])));
    fmt::print(stderr, "{}: {}{}\n", path, results[i].dtype, ShapeText(results[i].shape));
  }
  return absl::OkStatus();
}

absl::Status WriteCsv(const RowTable& table, const std::string& path) {
  constexpr size_t kPiece = 1 << 16;
  HEDDLE_ASSIGN_OR_RETURN(OutputFile file, OutputFile::Open(path));
  std::string text = table.CsvHeader();
  for (int64_t row = 0; row < table.rows(); ++row) {
    text += table.CsvRow(row);
    if (text.size() < kPiece) continue;
    HEDDLE_RETURN_IF_ERROR(file.Append(text));
    text.clear();
  }
  HEDDLE_RETURN_IF_ERROR(file.Append(text));
  HEDDLE_RETURN_IF_ERROR(file.Commit());
  fmt::print(stderr, "{}: {} rows\n", path, table.rows());
  return absl::OkStatus();
}

void PrintRows(const RowTable& table, bool csv, const OutputOptions& output) {
  if (!csv && !output.json) return fmt::print("{}", table.ToText(output.plain));
  if (csv) fmt::print("{}", table.CsvHeader());
  for (int64_t row = 0; row < table.rows(); ++row)
    fmt::print("{}", csv ? table.CsvRow(row) : table.JsonRow(row));
}

void Summarise(const std::vector<TensorSpec>& specs, const std::vector<NpyArray>& results,
               const OutputOptions& output) {
  nlohmann::json list = nlohmann::json::array();
  for (size_t i = 0; i < results.size(); ++i) {
    const TensorSpec& spec = specs[i];
    const std::vector<int64_t>& shape = results[i].shape;
    const std::vector<double> values = ToDoubles(results[i].bytes, spec.dtype);
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

// Whether the module as a whole is timed.
bool Times(const RunOptions& options) {
  return options.evaluate || !options.against.empty() || !options.duration.empty();
}

// A text as a field of a .csv file.
std::string CsvField(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  return "\"" + absl::StrReplaceAll(text, {{"\"", "\"\""}}) + "\"";
}

// The module, and those to compare it with.
std::vector<std::string> PathsOf(const RunOptions& options) {
  std::vector<std::string> paths = {options.module};
  paths.insert(paths.end(), options.against.begin(), options.against.end());
  return paths;
}

// How many rows every module computes in a timed run: as many as the inputs have, or, where the rows of the first module depend on
// each other, as many as it computes at once. InvalidArgument: a module cannot compute as many.
absl::StatusOr<int64_t> TimedRows(const RunOptions& options, const std::vector<Loaded>& modules,
                                  const GivenInputs& inputs) {
  const std::vector<std::string> paths = PathsOf(options);
  const int64_t rows = inputs.rows > 0 ? inputs.rows : RowsOfRun(modules[0].module.manifest);
  for (size_t m = 0; m < modules.size(); ++m) {
    const absl::Status found =
        BlocksOf({&modules[m].module, modules[m].options, {}, rows}).status();
    if (found.ok()) continue;
    if (inputs.rows > 0) return found;
    return absl::InvalidArgumentError(
        fmt::format("{} computes {} at once, and {} has no block of as many, so their times cannot "
                    "be compared; make both with the same --shape",
                    paths[0], RowsText(rows), paths[m]));
  }
  return rows;
}

// The first fields of every JSON document about times. `rows` is the number of rows in each call, or 0 if
// the model's shape gives it.
nlohmann::json TimingJson(const runtime::Manifest& manifest, int threads, int64_t rows) {
  return {{"schema_version", kJsonSchemaVersion},
          {"model", manifest.model},
          {"target", manifest.target},
          {"threads", threads},
          {"cpu", CpuName()},
          {"rows", rows}};
}

// Every module computes `rows` rows.
int Evaluate(const GlobalOptions& global, const RunOptions& options,
             const std::vector<Loaded>& modules, const GivenInputs& inputs, int64_t rows) {
  const std::vector<std::string> paths = PathsOf(options);
  std::vector<std::string> names;
  std::map<std::string, int> taken;
  std::vector<Contestant> contestants;
  int64_t told_rows = 0;  // 0: no module has a choice
  for (size_t m = 0; m < modules.size(); ++m) {
    const runtime::Manifest& manifest = modules[m].module.manifest;
    if (manifest.independent_rows) told_rows = rows;
    if (manifest.model_digest != modules[0].module.manifest.model_digest) {
      fmt::print(stderr, "warning: {} holds another model than {}\n", paths[m], paths[0]);
    }
    names.push_back(ColumnName(manifest, paths[m], taken));
    contestants.push_back({&modules[m].module, modules[m].options, inputs.bytes, rows});
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
    nlohmann::json object = TimingJson(manifest, threads, told_rows);
    object["rounds"] = options.rounds;
    for (size_t m = 0; m < modules.size(); ++m) {
      object["modules"].push_back({{"file", paths[m]},
                                   {"schedules", names[m]},
                                   {"min_ns", timings[m].Percentile(0)},
                                   {"median_ns", timings[m].Median()},
                                   {"max_ns", timings[m].Percentile(100)},
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
    // Each round is a mean, so there are no percentiles; --duration has them.
    fmt::print("{}: round means from {} to {}, median {}\n", names[m],
               FormatNs(timings[m].Percentile(0)), FormatNs(timings[m].Percentile(100)),
               FormatNs(timings[m].Median()));
  }
  fmt::print(
      "{}{} rounds in turns, each module loaded anew, two warm-up runs, then at least 50 ms; {} "
      "thread{}; {}; "
      "{}\n",
      told_rows > 0 ? RowsText(told_rows) + " a run; " : "", options.rounds, threads,
      threads == 1 ? "" : "s", CpuName(), manifest.target);
  fmt::print("memory: {} activations ({} without sharing), {} workspace\n",
             FormatBytes(manifest.arena_bytes), FormatBytes(manifest.unshared_bytes),
             FormatBytes(manifest.workspace_bytes));
  return kDone;
}

// Runs every module in streams for some time, and prints the latencies of single inferences.
int EvaluateStreams(const GlobalOptions& global, const RunOptions& options,
                    const std::vector<Loaded>& modules, const GivenInputs& inputs, int64_t rows) {
  absl::Duration duration;
  if (!absl::ParseDuration(options.duration, &duration) || duration <= absl::ZeroDuration() ||
      duration > kLongestRun) {
    return Fail(absl::InvalidArgumentError(
        fmt::format("--duration '{}' is no time up to {}; write for example --duration 10s",
                    options.duration, absl::FormatDuration(kLongestRun))));
  }
  const std::vector<std::string> paths = PathsOf(options);
  std::vector<std::string> names;
  std::map<std::string, int> taken;
  std::vector<Contestant> contestants;
  for (size_t m = 0; m < modules.size(); ++m) {
    names.push_back(ColumnName(modules[m].module.manifest, paths[m], taken));
    contestants.push_back({&modules[m].module, modules[m].options, inputs.bytes, rows});
  }
  const absl::StatusOr<std::vector<StreamTiming>> timed = TimeStreams(
      contestants,
      {.streams = options.streams, .duration = duration, .stop = [] { return Interrupted(); }});
  if (!timed.ok()) return Fail(timed.status());
  const runtime::Manifest& manifest = modules[0].module.manifest;
  const int threads = UsedThreads(options.threads, manifest);
  const int64_t told_rows = manifest.independent_rows ? rows : 0;
  if (global.output.json) {
    nlohmann::json object = TimingJson(manifest, threads, told_rows);
    object["streams"] = options.streams;
    object["modules"] = nlohmann::json::array();
    for (size_t m = 0; m < modules.size(); ++m) {
      const StreamTiming& timing = (*timed)[m];
      object["modules"].push_back({{"file", paths[m]},
                                   {"schedules", names[m]},
                                   {"ran_ns", absl::ToInt64Nanoseconds(timing.ran)},
                                   {"inferences", timing.latencies.count()},
                                   {"inferences_per_second", timing.Throughput()},
                                   {"min_ns", timing.latencies.Percentile(0)},
                                   {"p50_ns", timing.latencies.Percentile(50)},
                                   {"p90_ns", timing.latencies.Percentile(90)},
                                   {"p99_ns", timing.latencies.Percentile(99)},
                                   {"max_ns", timing.latencies.Percentile(100)}});
    }
    fmt::print("{}\n", object.dump());
    return Interrupted() ? kInterrupted : kDone;
  }
  if (options.csv)
    fmt::print(
        "file,schedules,streams,threads,inferences,inferences_per_second,min_ns,p50_ns,p90_ns,"
        "p99_ns,max_ns\n");
  Table table({"module", "inferences", "a second", "min", "p50", "p90", "p99", "max"});
  for (size_t m = 0; m < modules.size(); ++m) {
    const StreamTiming& timing = (*timed)[m];
    std::vector<double> latencies;
    for (const double p : {0.0, 50.0, 90.0, 99.0, 100.0})
      latencies.push_back(timing.latencies.Percentile(p));
    if (options.csv) {
      fmt::print("{},{},{},{},{},{:.3f},{:.0f}\n", CsvField(paths[m]), CsvField(names[m]),
                 options.streams, threads, timing.latencies.count(), timing.Throughput(),
                 fmt::join(latencies, ","));
      continue;
    }
    std::vector<std::string> row = {names[m], fmt::format("{}", timing.latencies.count()),
                                    fmt::format("{:.1f}", timing.Throughput())};
    for (const double ns : latencies) row.push_back(FormatNs(ns));
    table.Add(row);
  }
  if (!options.csv) {
    fmt::print("{}{}{} stream{} of {} thread{} for {}; {}; {}\n", table.ToText(global.output.plain),
               told_rows > 0 ? RowsText(told_rows) + " an inference; " : "", options.streams,
               options.streams == 1 ? "" : "s", threads, threads == 1 ? "" : "s",
               HumanDuration((*timed)[0].ran), CpuName(), manifest.target);
  }
  return Interrupted() ? kInterrupted : kDone;
}

// What goes to the file of --output, or to stdout.
absl::Status Report(const GlobalOptions& global, const RunOptions& options,
                    const std::vector<TensorSpec>& specs, const std::vector<NpyArray>& results,
                    bool independent_rows) {
  const bool csv_file = IsCsv(options.output);
  const bool has_rows = RowTable::HasRows(results);
  if (((options.csv && options.duration.empty()) || csv_file) && !has_rows)
    return absl::InvalidArgumentError(
        "the outputs have no rows in common, so they are no table; write .npy files to a "
        "directory");
  if (csv_file) {
    HEDDLE_RETURN_IF_ERROR(WriteCsv(RowTable(specs, results), options.output));
  } else if (!options.output.empty()) {
    HEDDLE_RETURN_IF_ERROR(WriteOutputs(specs, results, options.output));
  }
  const bool of_table = std::any_of(options.inputs.begin(), options.inputs.end(), IsCsv) ||
                        (independent_rows && !options.inputs.empty());
  const bool nothing_else =
      options.output.empty() && !Times(options) && !options.profile && options.check.empty();
  const bool csv_of_rows = options.csv && options.duration.empty();
  if (csv_of_rows || (nothing_else && of_table && has_rows))
    PrintRows(RowTable(specs, results), csv_of_rows, global.output);
  else if (nothing_else)
    Summarise(specs, results, global.output);
  return absl::OkStatus();
}

}  // namespace

int RunModule(const GlobalOptions& global, const RunOptions& options) {
  if (options.csv && global.output.json)
    return Fail(absl::InvalidArgumentError("--csv and --json are two formats; give one"));
  if (options.csv &&
      (options.profile || !options.check.empty() || (Times(options) && options.duration.empty()))) {
    return Fail(absl::InvalidArgumentError(
        "--csv is for what each row gives, or for the latencies of --duration; other timings "
        "and --check have --json"));
  }
  if (options.streams > 1 && options.duration.empty()) {
    return Fail(absl::InvalidArgumentError(fmt::format(
        "--streams {} says how many run at the same time; also say for how long: --duration 10s",
        options.streams)));
  }
  std::vector<Loaded> modules;
  for (const std::string& path : PathsOf(options)) {
    if (options.signed_only) {
      const absl::StatusOr<ModuleMaker> maker = MakerOfFile(global.server.tls_directory, path);
      if (!maker.ok()) return Fail(maker.status());
    }
    absl::StatusOr<Loaded> loaded = LoadModule(path, options.threads);
    if (!loaded.ok()) return Fail(loaded.status());
    modules.push_back(*std::move(loaded));
  }
  absl::StatusOr<std::unique_ptr<Executor>> made = MakeExecutor(modules[0], options.module);
  if (!made.ok()) return Fail(made.status());
  Executor& executor = **made;
  const runtime::Manifest& manifest = executor.manifest();
  const absl::StatusOr<GivenInputs> inputs = GatherInputs(options, manifest);
  if (!inputs.ok()) return Fail(inputs.status());
  const bool timed = Times(options) || options.profile;
  absl::StatusOr<int64_t> rows = 0;
  if (timed) rows = TimedRows(options, modules, *inputs);
  if (!rows.ok()) return Fail(rows.status());
  const absl::StatusOr<std::vector<NpyArray>> results = RunRows(*inputs, executor);
  if (absl::IsCancelled(results.status())) return kInterrupted;
  if (!results.ok()) return Fail(results.status());
  if (const absl::Status told =
          Report(global, options, manifest.outputs, *results, manifest.independent_rows);
      !told.ok())
    return Fail(told);
  if (!options.check.empty()) {
    const int code = CheckAgainstInterpreter(options, *inputs, *results, executor, global.output);
    if (code != kDone) return code;
  }
  if (options.profile) {
    const int threads = UsedThreads(options.threads, executor.manifest());
    const size_t block =
        BlocksOf({&modules[0].module, modules[0].options, {}, *rows})->front().block;
    const int code = PrintProfile(executor, block, threads, options.rounds, global.output);
    if (code != kDone) return code;
  }
  made->reset();  // its memory may come to be that of a module to time
  if (!Times(options)) return kDone;
  if (!options.duration.empty()) return EvaluateStreams(global, options, modules, *inputs, *rows);
  return Evaluate(global, options, modules, *inputs, *rows);
}

}  // namespace heddle::client
