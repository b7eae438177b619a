// heddle-gpu-bench: everything `bench/run.sh cuda` measures, in one program that needs nothing but
// a GPU, its driver and NVRTC: results on the GPU against the definition, operators tuned for a few
// minutes and compared with cuBLAS and cuDNN where they are found, a whole model. Progress goes to
// stderr, a table to stdout, everything to --json. This process itself never touches the GPU:
// children do, and may crash.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/command_documents.h"
#include "base/status_macros.h"
#include "base/vocabulary/workload_key.h"
#include "bench/common/fork_map.h"
#include "bench/common/line_server.h"
#include "bench/common/operator_tuner.h"
#include "bench/common/workloads.h"
#include "bench/cuda/conformance.h"
#include "bench/cuda/limits.h"
#include "bench/cuda/model.h"
#include "bench/cuda/peers.h"
#include "bench/cuda/report.h"
#include "compiler/codegen/backend.h"
#include "compiler/codegen/cuda/cuda_backend.h"
#include "compiler/driver/compile.h"
#include "compiler/ir/text.h"
#include "compiler/measure/measure.h"
#include "compiler/runtime/cuda/timing.h"
#include "compiler/runtime/device_kind.h"
#include "compiler/tensor/expression.h"

namespace heddle::bench {
namespace {

using nlohmann::json;

constexpr absl::Duration kChildLimit = absl::Seconds(60);
constexpr double kConformancePart = 0.3;  // of all minutes, at most
constexpr int kTrials = 1000;             // more than the time allows
constexpr int kRounds = 5;                // of the comparison with a peer, in turns
constexpr double kModelPart = 0.25;       // of the time that is left after the conformance

struct Options {
  std::string device = "cuda:0";
  std::string json_path = "heddle-cuda.json";
  double minutes = 7;
  std::vector<std::string> only;
  bool conformance_only = false;
};

// What `work` gives, done in a child that has until `end` and no longer than `limit`.
absl::StatusOr<json> InChild(absl::Time end, const std::function<absl::StatusOr<json>()>& work,
                             absl::Duration limit = kChildLimit) {
  const auto child = [&](int) -> absl::StatusOr<std::string> {
    HEDDLE_ASSIGN_OR_RETURN(const json found, work());
    return found.dump();
  };
  const auto text = ForkMap(1, {{}}, limit, child, end);
  HEDDLE_RETURN_IF_ERROR(text[0].status());
  return json::parse(*text[0]);
}

class Bench {
 public:
  Bench(const Options& options, machine::TargetInfo target, json gpu, absl::Time begin)
      : options_(options),
        target_(std::move(target)),
        peak_(gpu.at("peak_gflops")),
        tensor_peak_(gpu.at("tensor_peak_gflops")),
        cpus_(AllowedCpus()),
        begin_(begin),
        end_(begin + absl::Minutes(options.minutes)),
        report_(options.conformance_only ? "" : options.json_path) {
    report_.fields()["gpu"] = std::move(gpu);
  }

  // Internal: what is wrong in the end, of the conformance or of the model; everything else is told
  // in its place. The report is kept after each step.
  absl::Status Run() {
    HEDDLE_RETURN_IF_ERROR(report_.Save());  // if it cannot be, before anything is measured
    absl::Status wrong = Conformance();
    if (options_.conformance_only) return wrong;
    HEDDLE_RETURN_IF_ERROR(report_.Save());
    const absl::Duration left = end_ - absl::Now();
    if (options_.only.empty()) {
      wrong.Update(Model("resnet18", absl::Now() + kModelPart * left));
      HEDDLE_RETURN_IF_ERROR(report_.Save());
    }
    HEDDLE_RETURN_IF_ERROR(Operators());
    std::fprintf(stderr, "all of it, with every trial: %s\n", options_.json_path.c_str());
    return wrong;
  }

 private:
  // The conformance suite, and schedules of operators and of small models' tasks; where more is to
  // come, those that there is time for.
  absl::Status Conformance() {
    const absl::Time deadline =
        options_.conformance_only ? end_ : begin_ + kConformancePart * (end_ - begin_);
    int right = 0;
    json wrong = json::array(), left_out = json::array();
    const auto take = [&](const std::string& name, const absl::Status& status,
                          const std::string& text) {
      right += status.ok();
      if (absl::IsCancelled(status)) {
        left_out.push_back(name);
      } else if (!status.ok()) {
        wrong.push_back({{"name", name}, {"error", status.ToString()}, {"of", text}});
      }
    };
    HEDDLE_ASSIGN_OR_RETURN(const std::vector<ir::Program> programs, ConformancePrograms());
    const auto statuses =
        CheckConformance(programs, target_.target, options_.device, cpus_, deadline);
    for (size_t k = 0; k < programs.size(); ++k)
      take(programs[k].name, statuses[k], ir::Print(programs[k]));
    std::vector<std::string> names{"mlp", "resnet18", "128x256x512f16", "256x512x256f16",
                                   "64x24x48f16"};
    if (options_.conformance_only && !options_.only.empty()) names = options_.only;
    for (const std::string& name : names) {
      HEDDLE_ASSIGN_OR_RETURN(const std::vector<Workload> workloads,
                              FindWorkloads(name, {.target = target_.target}));
      for (const Workload& workload : workloads) {
        if (absl::Now() >= deadline) {
          left_out.push_back(workload.name);
          continue;
        }
        for (const auto& [trace, status] :
             CheckSchedules(workload, target_, options_.device, cpus_, deadline))
          take(workload.name, status, trace);
      }
    }
    std::fprintf(stderr, "conformance: %d right, %zu wrong or failed", right, wrong.size());
    if (!left_out.empty())
      std::fprintf(stderr, "; no time was left for %zu, the first %s", left_out.size(),
                   left_out[0].get<std::string>().c_str());
    std::fprintf(stderr, "\n");
    report_.fields()["conformance"] = {{"right", right}, {"failed", wrong}, {"left_out", left_out}};
    if (right == 0 && wrong.empty())
      return absl::DeadlineExceededError("no time was left for any check: give more --minutes");
    if (wrong.empty()) return absl::OkStatus();
    return absl::InternalError(absl::StrCat(
        wrong.size(), " of ", right + wrong.size(), " checks failed; the first: ",
        wrong[0].at("name").get<std::string>(), ": ", wrong[0].at("error").get<std::string>()));
  }

  absl::StatusOr<Tuned> TuneFor(const Workload& workload, absl::Time deadline) {
    TuneOptions tune;
    tune.trials = kTrials;
    tune.build_cpus = cpus_;
    tune.device = options_.device;
    tune.deadline = deadline;
    tune.finalists = 3;
    tune.progress = [&](int done, double best_ns) {
      std::fprintf(stderr, "%s: %d trials, best %.1f us\n", workload.name.c_str(), done,
                   best_ns * 1e-3);
    };
    absl::StatusOr<Tuned> tuned = Tune(workload.text, target_, tune);
    if (!tuned.ok()) return tuned;
    // What was tried, kept as data.
    json& log = report_.fields()["trials"][workload.name];
    for (const Tuned::Trial& trial : tuned->log) {
      json& row = log.emplace_back(json{{"trace", trial.trace}});
      if (trial.median_ns.ok()) row["ns"] = *trial.median_ns;
      if (!trial.median_ns.ok()) row["error"] = trial.median_ns.status().ToString();
    }
    return tuned;
  }

  // A whole model, end to end: its tasks tuned until the deadline. Internal if it does not run or
  // gives something else than on this CPU.
  absl::Status Model(const std::string& name, absl::Time deadline) {
    std::map<std::string, BestRecord> best;
    const absl::StatusOr<std::vector<Workload>> tasks =
        FindWorkloads(name, {.target = target_.target});
    for (size_t i = 0; tasks.ok() && i < tasks->size(); ++i) {
      const Workload& task = (*tasks)[i];
      const absl::Duration part = (deadline - absl::Now()) / static_cast<double>(tasks->size() - i);
      const absl::StatusOr<Tuned> tuned = TuneFor(task, absl::Now() + part);
      if (!tuned.ok() || tuned->finalists.empty()) continue;
      const Finalist& first = tuned->finalists[0];
      best[WorkloadKey(task.text)] = {first.trace, first.median_ns};
    }
    const absl::StatusOr<json> measured = InChild(
        end_,
        [&]() -> absl::StatusOr<json> {
          HEDDLE_ASSIGN_OR_RETURN(const ModelTimes times,
                                  TimeModel(name, target_.target, options_.device, best));
          json row{{"model", name},
                   {"us", times.tuned_us},
                   {"default_us", times.default_us},
                   {"tuned_tasks", best.size()},
                   {"relative_error", times.relative_error},
                   {"tolerance", times.tolerance}};
          if (!(times.relative_error <= times.tolerance))
            row["error"] =
                absl::StrCat("is wrong: relative error ", times.relative_error,
                             " against this CPU, of which ", times.tolerance, " is allowed");
          return row;
        },
        3 * kChildLimit);
    const json row =
        measured.ok() ? *measured : json{{"model", name}, {"error", measured.status().ToString()}};
    report_.fields()["models"].push_back(row);
    std::fprintf(stderr, "%s\n", row.dump().c_str());
    if (!row.contains("error") || absl::IsCancelled(measured.status())) return absl::OkStatus();
    return absl::InternalError(absl::StrCat(name, ": ", row.at("error").get<std::string>()));
  }

  absl::Status Operators() {
    std::vector<std::string> names = options_.only;
    if (names.empty()) {
      for (int i = 1; i <= 12; ++i) names.push_back(absl::StrCat("C", i));
      names.insert(names.end(),
                   {"1024x1024x1024", "4096x4096x4096", "1024x1024x1024f16", "4096x4096x4096f16"});
    }
    GpuReport::PrintHead();
    for (size_t i = 0; i < names.size(); ++i) {
      // Each gets its part of what is left; the comparison takes a quarter of it.
      const absl::Duration part = (end_ - absl::Now()) / static_cast<double>(names.size() - i);
      json row = OneOperator(names[i], absl::Now() + part * 0.75);
      row["operator"] = names[i];
      GpuReport::Print(row);
      report_.fields()["operators"].push_back(std::move(row));
      HEDDLE_RETURN_IF_ERROR(report_.Save());
    }
    report_.Mean("cuDNN", "C");
    return report_.Save();
  }

  json OneOperator(const std::string& name, absl::Time deadline) {
    const absl::StatusOr<std::vector<Workload>> workloads =
        FindWorkloads(name, {.target = target_.target});
    const std::optional<Operator> op = FindOperator(name);
    if (!workloads.ok() || workloads->size() != 1 || !op.has_value())
      return {{"error", "no such operator"}};
    const Workload& workload = (*workloads)[0];
    const absl::StatusOr<Tuned> tuned = TuneFor(workload, deadline);
    if (!tuned.ok()) return {{"error", tuned.status().ToString()}};
    if (tuned->finalists.empty() && tuned->failed == 0)
      return {{"error", "no time was left for a candidate"}};
    if (tuned->finalists.empty())
      return {{"error", "no valid candidate; the first failed: " + tuned->first_error}};
    // One that fails may have spoiled its process's use of the GPU: without it, from the start.
    std::vector<Finalist> finalists = tuned->finalists;
    json dropped = json::array(), result;
    while (true) {
      const absl::StatusOr<json> row =
          InChild(end_, [&] { return Compare(workload, *op, finalists); });
      if (!row.ok()) return {{"error", row.status().ToString()}};
      result = *row;
      if (!result.contains("bad_finalist")) break;
      finalists.erase(finalists.begin() + result.at("bad_finalist").get<int64_t>());
      dropped.push_back(result.at("why"));
      if (finalists.empty())
        return {{"error",
                 absl::StrCat("no finalist runs; the first: ", dropped[0].get<std::string>())}};
    }
    if (!dropped.empty()) result["dropped"] = dropped;
    result["measured"] = tuned->measured;
    result["failed"] = tuned->failed;
    result["gflops"] = workload.flops / result.at("ns").get<double>();
    result["part_of_peak"] = result["gflops"].get<double>() / (op->half ? tensor_peak_ : peak_);
    return result;
  }

  // The finalists and the peer in turns, warm; medians of the rounds' medians. Where one of them
  // fails, "bad_finalist" and "why".
  absl::StatusOr<json> Compare(const Workload& workload, const Operator& op,
                               const std::vector<Finalist>& finalists) {
    MeasureOptions options;
    options.device = options_.device;
    options.timing = RoundTiming();
    HEDDLE_ASSIGN_OR_RETURN(const auto bench, WorkloadBench::Create(workload.text, options));
    HEDDLE_ASSIGN_OR_RETURN(const auto device, runtime::CudaDevice::Open(
                                                   runtime::ParseDevice(options_.device)->ordinal));
    const bool product = op.kind == OperatorKind::kMatrixProduct;
    const absl::StatusOr<PeerCall> peer =
        product ? OpenCublas(*device, op) : OpenCudnn(*device, op);
    std::vector<codegen::Artifact> artifacts;
    const auto bad = [](size_t i, const absl::Status& status) {
      return json{{"bad_finalist", i}, {"why", status.ToString()}};
    };
    for (const Finalist& f : finalists) {
      absl::StatusOr<codegen::Artifact> artifact =
          BuildCandidate(workload.text, ScheduleChoice::kTrace, f.trace, target_.target);
      if (!artifact.ok()) return bad(artifacts.size(), artifact.status());
      artifacts.push_back(*std::move(artifact));
    }
    std::vector<runtime::Timing> ours(artifacts.size());
    runtime::Timing theirs;
    for (int round = 0; round < kRounds; ++round) {
      for (size_t i = 0; i < artifacts.size(); ++i) {
        const absl::StatusOr<Measurement> found = bench->Run(artifacts[i]);
        if (!found.ok()) return bad(i, found.status());
        ours[i].samples_ns.push_back(found->timing.MedianNs());
      }
      if (!peer.ok()) continue;
      HEDDLE_ASSIGN_OR_RETURN(const runtime::Timing found,
                              runtime::TimeOnDevice(*device, peer->call, options.timing));
      theirs.samples_ns.push_back(found.MedianNs());
    }
    size_t best = 0;
    for (size_t i = 1; i < ours.size(); ++i) {
      if (ours[i].MedianNs() < ours[best].MedianNs()) best = i;
    }
    json row = {{"ns", ours[best].MedianNs()},
                {"trace", finalists[best].trace},
                {"samples_ns", ours[best].samples_ns}};
    if (peer.ok()) {
      row["peer"] = peer->name;
      row["peer_ns"] = theirs.MedianNs();
      row["peer_samples_ns"] = theirs.samples_ns;
      row["ratio"] = theirs.MedianNs() / ours[best].MedianNs();
    } else {
      row["no_peer"] = std::string(peer.status().message());
    }
    return row;
  }

  const Options& options_;
  const machine::TargetInfo target_;
  const double peak_, tensor_peak_;  // GFLOP/s
  const std::vector<int> cpus_;
  const absl::Time begin_, end_;
  GpuReport report_;
};

// Holds the compiled code of this run, so that no other's is taken for it.
class ScratchFolder {
 public:
  ScratchFolder() : path_(std::filesystem::temp_directory_path() / "heddle-gpu-bench-XXXXXX") {
    if (mkdtemp(path_.data()) == nullptr) path_.clear();
    setenv("HEDDLE_CODE_CACHE", path_.c_str(), /*overwrite=*/1);  // empty: none
  }
  ~ScratchFolder() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

 private:
  std::string path_;
};

absl::Status Main(const Options& options) {
  const absl::Time begin = absl::Now();
  const ScratchFolder code;
  HEDDLE_ASSIGN_OR_RETURN(const codegen::Toolchain nvrtc, codegen::CudaBackend().FindToolchain());
  if (!nvrtc.warning.empty()) std::fprintf(stderr, "%s\n", nvrtc.warning.c_str());
  HEDDLE_ASSIGN_OR_RETURN(const json gpu, InChild(begin + absl::Minutes(options.minutes), [&] {
                            return DescribeGpu(options.device, !options.conformance_only);
                          }));
  std::fprintf(stderr, "%s\n", gpu.dump().c_str());
  HEDDLE_ASSIGN_OR_RETURN(Target target,
                          ParseTarget("cuda -arch=" + gpu.at("arch").get<std::string>()));
  HEDDLE_ASSIGN_OR_RETURN(target, codegen::ResolveTarget(target));
  HEDDLE_ASSIGN_OR_RETURN(machine::TargetInfo info, codegen::DescribeTarget(target));
  info.multiprocessors = gpu.at("multiprocessors");
  return Bench(options, std::move(info), gpu, begin).Run();
}

}  // namespace
}  // namespace heddle::bench

int main(int argc, char** argv) {
  heddle::bench::Options options;
  CLI::App app("Checks, tunes and measures operators on a GPU; see bench/run.sh cuda.");
  app.add_option("--device", options.device, "the GPU")->capture_default_str();
  app.add_option("--minutes", options.minutes, "all that may be used")
      ->capture_default_str()
      ->check(CLI::Range(0.5, 600.0));
  app.add_option("--only", options.only, "operators: C2,1024x1024x1024,1024x1024x1024f16")
      ->delimiter(',');
  app.add_option("--json", options.json_path,
                 "file for the report and all trials, written anew after each step")
      ->capture_default_str();
  app.add_flag("--conformance-only", options.conformance_only,
               "measure nothing; --only: the operators and models whose schedules are checked");
  if (const auto end = heddle::ParseCommandLine(&app, argc, argv)) return *end;
  const absl::Status status = heddle::bench::Main(options);
  if (status.ok()) return 0;
  std::fprintf(stderr, "heddle-gpu-bench: %s\n", std::string(status.message()).c_str());
  return absl::IsInternal(status) ? 1 : 2;
}
