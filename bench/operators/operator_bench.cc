// heddle-operator-bench: our side of `bench/run.sh operators`, one line of JSON a request:
//   {"do": "version"} -> {"version", "target"}
//   {"do": "peak", "cores": 1} -> {"gflops"}          of an FMA loop on this many of the kernel's
//   cores at once; default: all of them
//   {"do": "open", "name": "C2"} -> {"key", "label", "layout", "flops"}   timed on warm caches
//   {"do": "open", "workload": TEXT} -> {"key"}                 timed on cold ones, as in a model
//   {"do": "tune", "trials": 500, "seed": 0, "known": [{"trace", "median_ns"}]}
//     -> {"finalists": [{"trace", "median_ns"}], ..}
//   {"do": "load", "trace": ".."} -> {"id", "trace"}  without a trace: the default schedule
//   {"do": "round", "id": 0} -> {"samples_ns": [..]}  checked against the workload's definition
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <numeric>
#include <thread>

#include "base/command_documents.h"
#include "base/status_macros.h"
#include "base/vocabulary/workload_key.h"
#include "bench/common/line_server.h"
#include "bench/common/operator_tuner.h"
#include "bench/common/workloads.h"
#include "compiler/codegen/backend.h"
#include "compiler/driver/compile.h"
#include "compiler/ir/text.h"
#include "compiler/measure/measure.h"
#include "compiler/runtime/machine_limits.h"
#include "compiler/schedule/space.h"
#include "compiler/tensor/expression.h"

namespace heddle::bench {
namespace {

using nlohmann::json;

class Ours {
 public:
  Ours(machine::TargetInfo target, std::vector<int> cpus, std::vector<int> build_cpus)
      : target_(std::move(target)), cpus_(std::move(cpus)), build_cpus_(std::move(build_cpus)) {}

  absl::StatusOr<json> Version() const {
    return json{{"version", "Heddle"}, {"target", ToText(target_.target)}};
  }

  absl::StatusOr<json> Peak(const json& request) const {
    const size_t cores = std::min<size_t>(cpus_.size(), request.value("cores", cpus_.size()));
    std::vector<double> gflops(cores);
    std::vector<std::thread> threads;
    for (size_t k = 0; k < cores; ++k) {
      threads.emplace_back([&, k] {
        ConfineTo({cpus_[k]});
        gflops[k] = runtime::MeasureFmaPeak();
      });
    }
    for (std::thread& thread : threads) thread.join();
    return json{{"gflops", std::accumulate(gflops.begin(), gflops.end(), 0.0)}};
  }

  absl::StatusOr<json> Open(const json& request) {
    MeasureOptions options;
    std::vector<Workload> workloads;
    if (request.contains("workload")) {
      workloads.push_back({"", "", request.at("workload"), 0});
    } else {
      HEDDLE_ASSIGN_OR_RETURN(
          workloads,
          FindWorkloads(request.at("name"), {.target = target_.target, .free_layout = true}));
      options.timing = RoundTiming();
    }
    if (workloads.size() != 1) return absl::InvalidArgumentError("that is a model");
    options.threads = target_.target.threads;
    options.cpus = cpus_;
    HEDDLE_ASSIGN_OR_RETURN(bench_, WorkloadBench::Create(workloads[0].text, options));
    workload_ = std::move(workloads[0]);
    loaded_.clear();
    return json{{"key", WorkloadKey(workload_.text)},
                {"label", workload_.label},
                {"layout", workload_.layout},
                {"flops", workload_.flops}};
  }

  absl::StatusOr<json> Tune(const json& request) {
    TuneOptions options;
    options.trials = request.at("trials");
    options.seed = request.at("seed");
    options.cpus = cpus_;
    options.build_cpus = build_cpus_;
    for (const json& known : request.value("known", json::array())) {
      options.known.push_back({known.at("trace"), known.at("median_ns")});
    }
    options.progress = [&](int done, double best_ns) {
      std::fprintf(stderr, "%s: %d of %d trials, best %.1f us\n", workload_.name.c_str(), done,
                   options.trials, best_ns * 1e-3);
    };
    HEDDLE_ASSIGN_OR_RETURN(const Tuned tuned, bench::Tune(workload_.text, target_, options));
    if (tuned.finalists.empty() && options.known.empty()) {
      return absl::NotFoundError("no valid candidate; the first failed: " + tuned.first_error);
    }
    json finalists = json::array();
    for (const Finalist& f : tuned.finalists) {
      finalists.push_back({{"trace", f.trace}, {"median_ns", f.median_ns}});
    }
    return json{{"finalists", finalists}, {"measured", tuned.measured}, {"failed", tuned.failed}};
  }

  absl::StatusOr<json> Load(const json& request) {
    std::string trace = request.value("trace", "");
    if (!request.contains("trace")) {
      HEDDLE_ASSIGN_OR_RETURN(const ir::Program naive, ir::Parse(workload_.text));
      HEDDLE_ASSIGN_OR_RETURN(const schedule::Trace steps, schedule::DefaultTrace(naive, target_));
      trace = schedule::ToText(steps);
    }
    HEDDLE_ASSIGN_OR_RETURN(
        codegen::Artifact artifact,
        BuildCandidate(workload_.text, ScheduleChoice::kTrace, trace, target_.target));
    loaded_.push_back(std::move(artifact));
    return json{{"id", loaded_.size() - 1}, {"trace", trace}};
  }

  absl::StatusOr<json> Round(const json& request) {
    const size_t id = request.at("id");
    if (id >= loaded_.size()) return absl::NotFoundError("nothing is loaded under that id");
    HEDDLE_ASSIGN_OR_RETURN(const Measurement found, bench_->Run(loaded_[id]));
    return RoundAnswer(found.timing);
  }

 private:
  const machine::TargetInfo target_;
  const std::vector<int> cpus_;
  const std::vector<int> build_cpus_;
  Workload workload_;
  std::unique_ptr<WorkloadBench> bench_;
  std::vector<codegen::Artifact> loaded_;
};

absl::Status Serve(const std::vector<int>& cpus, bool winograd) {
  const std::vector<int> build_cpus = AllowedCpus();
  ConfineTo(cpus);
  Target target;
  target.threads = static_cast<int>(cpus.size());
  target.winograd = winograd;
  HEDDLE_ASSIGN_OR_RETURN(target, codegen::ResolveTarget(target));
  HEDDLE_ASSIGN_OR_RETURN(machine::TargetInfo info, codegen::DescribeTarget(target));
  Ours ours(std::move(info), cpus, build_cpus);
  ServeLines({
      {"version", [&](const json&) { return ours.Version(); }},
      {"peak", [&](const json& request) { return ours.Peak(request); }},
      {"open", [&](const json& request) { return ours.Open(request); }},
      {"tune", [&](const json& request) { return ours.Tune(request); }},
      {"load", [&](const json& request) { return ours.Load(request); }},
      {"round", [&](const json& request) { return ours.Round(request); }},
  });
  return absl::OkStatus();
}

}  // namespace
}  // namespace heddle::bench

int main(int argc, char** argv) {
  std::vector<int> cpus;
  CLI::App app("Tunes and times single operators on request; bench/run.sh operators drives it.");
  app.add_option("--cpus", cpus, "cores of a kernel, one thread on each")
      ->required()
      ->delimiter(',');
  bool winograd = true;
  app.add_flag("!--no-winograd", winograd, "direct convolutions only");
  if (const auto end = heddle::ParseCommandLine(&app, argc, argv)) return *end;
  const absl::Status status = heddle::bench::Serve(cpus, winograd);
  if (status.ok()) return 0;
  std::fprintf(stderr, "heddle-operator-bench: %s\n", std::string(status.message()).c_str());
  return 1;
}
