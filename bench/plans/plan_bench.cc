// heddle-plan-bench: chooses the plan of a model from default schedules that it measures on this machine,
// without a service. With -o, compiles a module for each contender, so that predictions can be compared
// with the times of whole modules; with --kernels, the kernels in each module are timed, too. With --module, writes the module that
// a job would make without a trial. Prints one JSON object.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "base/clock.h"
#include "base/command_documents.h"
#include "base/quantiles.h"
#include "base/splitmix.h"
#include "base/status_macros.h"
#include "bench/common/fork_map.h"
#include "client/commands/model_options.h"
#include "client/modules/model_file.h"
#include "compiler/codegen/backend.h"
#include "compiler/driver/choose_plan.h"
#include "compiler/measure/measure.h"
#include "compiler/runtime/executor.h"
#include "compiler/runtime/module.h"
#include "worker/child/guard.h"

namespace heddle::bench {
namespace {

using nlohmann::json;

constexpr absl::Duration kKernelLimit = absl::Seconds(60);
// Repeating a disturbed measurement may take this part of the limit.
constexpr int kRepeatPart = 3;
// Rounds that find the usual time of the guard's canary.
constexpr int kCanaries = 9;
// Inferences in which the kernels of a module are timed one by one: until the time is used, and at least a few.
constexpr absl::Duration kProfileTime = absl::Seconds(1);
constexpr int kLeastInferences = 5;
// The chosen plan may have kernels that no contender had before. They are measured, and the choice is made
// again, at most so often.
constexpr int kMostChoices = 4;

struct Flags {
  std::string model, folder, module, times, machine, mcpu = "native";
  client::ModelFlags import;
  int threads = 1;
  std::vector<int> cpus = {0};
  bool kernels = false, search = false, invent = false;
  int graphs = 200, search_threads = 1;
};

class PlanBench {
 public:
  PlanBench(const Flags& flags, client::ModelFile model, Target target)
      : flags_(flags), model_(std::move(model)), target_(std::move(target)) {}

  absl::StatusOr<json> Run() {
    HEDDLE_ASSIGN_OR_RETURN(const v1::ModelOptions imported_as,
                            client::MakeModelOptions(flags_.import));
    options_ = client::FromProto(imported_as, &model_);
    HEDDLE_RETURN_IF_ERROR(ReadMachine());
    ReadTimes();
    if (flags_.search) return Search();
    HEDDLE_ASSIGN_OR_RETURN(PlanChoice choice, Choose());
    int choices = 0, measured = 0;
    for (; choices < kMostChoices; ++choices) {
      const int now = MeasureAll(choice);
      if (now == 0) break;
      measured += now;
      WriteTimes();
      HEDDLE_ASSIGN_OR_RETURN(choice, Choose());
    }
    json contenders = json::array();
    for (size_t i = 0; i < choice.contenders.size(); ++i) {
      const Contender& contender = choice.contenders[i];
      double saved = 0;
      for (const auto& [key, ns] : contender.cost.saved_ns) saved += ns;
      json forests = json::object();
      for (const auto& [node, form] : contender.plan.forests)
        forests[node] = std::string(graph::ForestFormName(form));
      contenders.push_back({{"name", contender.name},
                            {"predicted_ns", contender.cost.ns},
                            {"saved_ns", saved},
                            {"spread_ns", SpreadNs(contender.cost)},
                            {"calls", contender.cost.calls},
                            {"measured_calls", contender.cost.measured},
                            {"cuts", contender.plan.separate.size()},
                            {"forests", forests}});
      if (flags_.folder.empty()) continue;
      const std::string path = absl::StrCat(flags_.folder, "/", i, ".heddle");
      HEDDLE_RETURN_IF_ERROR(Compile(contender.plan, {}, path));
      contenders.back()["path"] = path;
      if (!flags_.kernels) continue;
      HEDDLE_ASSIGN_OR_RETURN(contenders.back()["kernels"], Kernels(contender, path));
    }
    if (!flags_.module.empty())
      HEDDLE_RETURN_IF_ERROR(Compile(choice.best().plan, Records(), flags_.module));
    return json{{"target", ToText(target_)},
                {"contenders", contenders},
                {"chosen", choice.chosen},
                {"layouts", choice.layouts.has_value() ? json(*choice.layouts) : json()},
                {"measured_kernels", measured},
                {"choices", choices + 1},
                {"kernels", choice.error.kernels},
                {"held_out_median", choice.error.median},
                {"held_out_rms", choice.error.rms},
                {"disturbed", disturbed_},
                {"failed", failed_}};
  }

 private:
  absl::StatusOr<PlanChoice> Choose() const {
    return ChoosePlan(model_.onnx, options_, target_, times_);
  }

  // What the search for graphs reaches in each mode, and how fast it is.
  absl::StatusOr<json> Search() {
    HEDDLE_ASSIGN_OR_RETURN(const PlanChoice survey,
                            ChoosePlan(model_.onnx, options_, target_, {}));
    if (flags_.invent) {
      for (const Contender& contender : survey.contenders) {
        for (const graph::Task& task : contender.tasks) times_[task.key] = Invented(task);
      }
    } else {
      MeasureAll(survey);
      WriteTimes();
    }
    json modes = json::object();
    using Mode = PlanSearch::Mode;
    for (const auto& [name, mode] :
         {std::pair("off", Mode::kOff), std::pair("sequential", Mode::kSequential),
          std::pair("joint", Mode::kJoint)}) {
      PlanSearch search;
      search.mode = mode;
      search.evaluations = 0;
      search.graphs = flags_.graphs;
      search.threads = flags_.search_threads;
      // After each improvement: graphs, seconds of all cores, cost.
      json curve = json::array();
      const double start = CpuSeconds();
      double first = 0, last = 0, best = 0;
      search.progress = [&](int graph, double ns) {
        last = CpuSeconds();
        if (first == 0) first = last;
        if (ns != best) curve.push_back({graph, last - start, ns});
        best = ns;
      };
      const absl::Time wall = absl::Now();
      HEDDLE_ASSIGN_OR_RETURN(const PlanChoice choice,
                              ChoosePlan(model_.onnx, options_, target_, times_, search));
      const Contender* least = &choice.contenders[0];
      for (const Contender& contender : choice.contenders) {
        if (contender.cost.ns < least->cost.ns) least = &contender;
      }
      modes[name] = {{"ns", least->cost.ns},
                     {"contender", least->name},
                     {"substitutions", least->plan.substitutions.size()},
                     {"graphs", choice.graphs},
                     {"bounded", choice.bounded},
                     {"graphs_per_cpu_s", choice.graphs > 1 ? choice.graphs / (last - first) : 0},
                     {"cpu_s", CpuSeconds() - start},
                     {"wall_s", absl::ToDoubleSeconds(absl::Now() - wall)},
                     {"curve", curve}};
    }
    return json{{"target", ToText(target_)}, {"modes", modes}};
  }

  static double CpuSeconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

  // 3 us, and the arithmetic at 40 GFLOP/s, times a factor between 1 and 1.5 that depends on the kernel.
  static double Invented(const graph::Task& task) {
    uint64_t h = 0;
    for (const char c : task.key) h = SplitMix64(h ^ static_cast<uint64_t>(c));
    return (3000 + task.flops / 40) * (1 + 0.1 * static_cast<double>(h % 6));
  }

  // Measures the default schedules of kernels without a time. How many there were.
  int MeasureAll(const PlanChoice& choice) {
    std::vector<graph::Task> tasks;
    std::map<std::string, bool> seen;
    for (const Contender& contender : choice.contenders) {
      for (const graph::Task& task : contender.tasks) {
        if (!times_.contains(task.key) && seen.emplace(task.key, true).second)
          tasks.push_back(task);
      }
    }
    worker::GuardOptions guard;
    guard.read = [this] { return worker::TakeReading(flags_.cpus); };
    guard.sleep = [](absl::Duration time) { absl::SleepFor(time); };
    std::vector<double> canaries;
    for (int i = 0; i < kCanaries; ++i) canaries.push_back(guard.read().canary_ns);
    guard.canary_usual_ns = Median(canaries);
    // A time, and after a space what disturbed it.
    const auto results = ForkMap(
        static_cast<int>(tasks.size()), {flags_.cpus}, kKernelLimit,
        [&](int i) -> absl::StatusOr<std::string> {
          const std::string& workload = tasks[static_cast<size_t>(i)].workload;
          MeasureOptions options;
          options.threads = flags_.threads;
          options.cpus = flags_.cpus;
          HEDDLE_ASSIGN_OR_RETURN(const auto bench, WorkloadBench::Create(workload, options));
          HEDDLE_ASSIGN_OR_RETURN(
              const codegen::Artifact artifact,
              BuildCandidate(workload, ScheduleChoice::kDefault, "", target_, options_.machine));
          std::vector<absl::StatusOr<Measurement>> runs;
          guard.repeat_before = MonotonicNow() + kKernelLimit / kRepeatPart;
          const worker::GuardedRun run = worker::RunGuarded(guard, [&] {
            runs.push_back(bench->Run(artifact));
            return runs.back().ok();
          });
          guard.resigned = !run.quietness.disturbance.empty();
          HEDDLE_ASSIGN_OR_RETURN(const Measurement measured, runs[static_cast<size_t>(run.kept)]);
          return absl::StrCat(measured.timing.MedianNs(), " ", run.quietness.disturbance);
        });
    for (size_t i = 0; i < tasks.size(); ++i) {
      double ns = 0;
      if (!results[i].ok()) {
        failed_.push_back(absl::StrCat(tasks[i].label, ": ", results[i].status().message()));
      } else {
        const std::pair<std::string, std::string> found =
            absl::StrSplit(*results[i], absl::MaxSplits(' ', 1));
        if (!absl::SimpleAtod(found.first, &ns))
          failed_.push_back(absl::StrCat(tasks[i].label, ": no time"));
        if (!found.second.empty())
          disturbed_.push_back(absl::StrCat(tasks[i].label, ": ", found.second));
      }
      times_[tasks[i].key] = ns;  // 0: not measured, and not tried again
    }
    return static_cast<int>(tasks.size());
  }

  // What all calls of each measured kernel take in the model, costliest first: as predicted, and in the module at `path`.
  absl::StatusOr<json> Kernels(const Contender& contender, const std::string& path) const {
    const auto profiled =
        ForkMap(1, {flags_.cpus}, kKernelLimit, [&](int) { return ProfileModule(path); });
    HEDDLE_RETURN_IF_ERROR(profiled[0].status());
    std::map<std::string, double> in_module;
    for (const absl::string_view line : absl::StrSplit(*profiled[0], '\n', absl::SkipEmpty())) {
      const std::pair<std::string, std::string> kernel = absl::StrSplit(line, ' ');
      double ns = 0;
      if (absl::SimpleAtod(kernel.second, &ns)) in_module[kernel.first] = ns;
    }
    std::vector<json> kernels;
    for (const graph::Task& task : contender.tasks) {
      const auto alone = times_.find(task.key);
      const auto module = in_module.find(task.key);
      if (alone == times_.end() || !(alone->second > 0) || module == in_module.end()) continue;
      const auto saved = contender.cost.saved_ns.find(task.key);
      const double alone_ns = alone->second * task.weight;
      kernels.push_back(json{
          {"task", task.key},
          {"label", task.label},
          {"uses", task.weight},
          {"alone_ns", alone_ns},
          {"predicted_ns", alone_ns - (saved == contender.cost.saved_ns.end() ? 0 : saved->second)},
          {"module_ns", module->second}});
    }
    std::stable_sort(kernels.begin(), kernels.end(), [](const json& a, const json& b) {
      return a["module_ns"].get<double>() > b["module_ns"].get<double>();
    });
    return json(kernels);
  }

  // A line for each kernel: its workload key, and what all its calls take in an inference.
  absl::StatusOr<std::string> ProfileModule(const std::string& path) const {
    HEDDLE_ASSIGN_OR_RETURN(runtime::Module module, runtime::ReadModuleFile(path));
    runtime::Executor::Options options;
    options.threads = flags_.threads;
    options.cpus = flags_.cpus;
    HEDDLE_ASSIGN_OR_RETURN(const auto executor,
                            runtime::Executor::Create(std::move(module), options));
    const runtime::Manifest& manifest = executor->manifest();
    std::vector<std::vector<double>> samples(manifest.calls.size());
    const absl::Time begin = MonotonicNow();
    for (int i = 0; i < kLeastInferences || MonotonicNow() - begin < kProfileTime; ++i) {
      const std::vector<double> times = executor->ProfileNs(1);
      HEDDLE_RETURN_IF_ERROR(executor->status());
      for (size_t c = 0; c < times.size(); ++c) samples[c].push_back(times[c]);
    }
    std::map<std::string, double> sums;
    for (size_t c = 0; c < samples.size(); ++c) {
      const auto kernel = static_cast<size_t>(manifest.calls[c].kernel);
      sums[manifest.kernels[kernel].task] += Median(samples[c]);
    }
    return absl::StrJoin(sums, "\n", absl::PairFormatter(" "));
  }

  // What was measured, as a job has it in its records: the module then knows what its blocks of rows take.
  std::map<std::string, BestRecord> Records() const {
    std::map<std::string, BestRecord> records;
    for (const auto& [key, ns] : times_) {
      if (ns > 0) records[key] = {std::nullopt, ns};
    }
    return records;
  }

  absl::Status Compile(const plan::Plan& plan, const std::map<std::string, BestRecord>& records,
                       const std::string& path) const {
    CompileOptions compile;
    compile.model_name = flags_.model;
    compile.plan = plan;
    HEDDLE_ASSIGN_OR_RETURN(const std::string bytes,
                            CompileModel(model_.onnx, options_, target_, records, compile));
    std::ofstream file(path, std::ios::binary);
    if (!(file << bytes)) return absl::UnavailableError(absl::StrCat("cannot write ", path));
    return absl::OkStatus();
  }

  absl::Status ReadMachine() {
    if (flags_.machine.empty()) return absl::OkStatus();
    std::ifstream file(flags_.machine);
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    HEDDLE_ASSIGN_OR_RETURN(options_.machine, machine::ParseMeasuredMachine(text));
    return absl::OkStatus();
  }

  void ReadTimes() {
    std::ifstream file(flags_.times);
    if (!file) return;
    const json known = json::parse(file, nullptr, false);
    if (known.is_object()) times_ = known.get<std::map<std::string, double>>();
  }
  void WriteTimes() const {
    if (!flags_.times.empty()) std::ofstream(flags_.times) << json(times_).dump();
  }

  const Flags& flags_;
  client::ModelFile model_;
  const Target target_;
  ModelOptions options_;
  std::map<std::string, double> times_;
  std::vector<std::string> failed_, disturbed_;
};

absl::StatusOr<json> Run(const Flags& flags) {
  Target target;
  target.threads = flags.threads;
  target.cpu = flags.mcpu;
  HEDDLE_ASSIGN_OR_RETURN(target, codegen::ResolveTarget(target));
  HEDDLE_ASSIGN_OR_RETURN(client::ModelFile model, client::OpenModel(flags.model));
  return PlanBench(flags, std::move(model), std::move(target)).Run();
}

}  // namespace
}  // namespace heddle::bench

int main(int argc, char** argv) {
  heddle::bench::Flags flags;
  CLI::App app(
      "Chooses the plan of a model from measured default schedules; bench/run.sh plans and "
      "classical "
      "call it.");
  app.add_option("model", flags.model, "ONNX file, or a forest of XGBoost or LightGBM")->required();
  app.add_option("-o,--output", flags.folder,
                 "folder for the modules of all contenders; without: none is compiled");
  app.add_option("--module", flags.module,
                 "module to write: the chosen plan with default schedules, and what they took");
  app.add_option("--shape", flags.import.shapes,
                 "shape of an input, or extent of a dimension: rows=1")
      ->allow_extra_args(false);
  app.add_option("--times", flags.times, "file that keeps the times of kernels between runs");
  app.add_option("--machine", flags.machine,
                 "what `heddle-worker --measure-machine` printed; default: the table");
  app.add_option("--threads", flags.threads, "threads of a kernel")->check(CLI::Range(1, 256));
  app.add_option("--mcpu", flags.mcpu, "CPU that code is made for; default: this one");
  app.add_option("--cpus", flags.cpus, "cores to pin to")->delimiter(',');
  app.add_flag(
      "--kernels", flags.kernels,
      "with -o: what each measured kernel takes in each module, beside what it takes alone "
      "and what is predicted of it");
  app.add_flag("--search", flags.search,
               "compile nothing: report what the search for graphs reaches without substitutions, "
               "with substitutions "
               "before layouts, and with both together");
  app.add_flag("--invent", flags.invent, "with --search: make up the times of kernels");
  app.add_option("--graphs", flags.graphs, "with --search: graphs that each search tries");
  app.add_option("--search-threads", flags.search_threads, "with --search: its threads");
  if (const auto end = heddle::ParseCommandLine(&app, argc, argv)) return *end;
  const auto result = heddle::bench::Run(flags);
  if (result.ok()) {
    std::printf("%s\n", result->dump().c_str());
    return 0;
  }
  std::fprintf(stderr, "heddle-plan-bench: %s\n", std::string(result.status().message()).c_str());
  return 1;
}
