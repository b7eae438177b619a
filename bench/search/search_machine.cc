#include "bench/search/search_machine.h"

#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/status_macros.h"
#include "bench/common/fork_map.h"
#include "bench/common/line_server.h"
#include "bench/common/workloads.h"
#include "bench/search/collect.h"
#include "bench/search/compare.h"
#include "bench/search/live.h"
#include "bench/search/variant.h"
#include "compiler/codegen/backend.h"

namespace heddle::bench {

using nlohmann::json;

absl::Status RunLives(const LiveFlags& flags) {
  const std::vector<int> build_cpus = AllowedCpus();
  ConfineTo(flags.cpus);
  Target target;
  target.threads = static_cast<int>(flags.cpus.size());
  HEDDLE_ASSIGN_OR_RETURN(target, codegen::ResolveTarget(target));
  HEDDLE_ASSIGN_OR_RETURN(const machine::TargetInfo info, codegen::DescribeTarget(target));
  const CandidateRunner::Options machine{flags.cpus, build_cpus, CollectTiming(),
                                         absl::Seconds(20)};
  for (const std::string& name : flags.names) {
    HEDDLE_ASSIGN_OR_RETURN(const std::vector<Workload> workloads, FindWorkloads(name));
    if (workloads.size() != 1) return absl::InvalidArgumentError(name + " is a model");
    for (int seed = 0; seed < flags.seeds; ++seed) {
      for (const std::string& method : flags.methods) {
        RunOptions options{.strategy = method,
                           .seed = static_cast<uint64_t>(seed),
                           .trials = TrialsOf(method, flags.trials)};
        absl::StatusOr<cost_model::Method> variant;
        if (method.find(':') != std::string::npos) {
          HEDDLE_ASSIGN_OR_RETURN(variant, ParseVariant(method));
          options.method = &*variant;
        }
        HEDDLE_ASSIGN_OR_RETURN(const LiveRun run, RunLive(workloads[0], info, machine, options));
        const double seconds = run.propose_s + run.build_s + run.measure_s + run.update_s;
        std::fprintf(stderr, "%s, %s, seed %d: %zu trials in %.0f s\n", name.c_str(),
                     method.c_str(), seed, run.best_ns.size(), seconds);
        json best = json::array();
        for (const double ns : run.best_ns) best.push_back(std::round(ns));
        std::printf("%s\n", json{{"operator", name},
                                 {"method", method},
                                 {"seed", seed},
                                 {"best_ns", best},
                                 {"untuned_ns", run.untuned_ns},
                                 {"propose_s", run.propose_s},
                                 {"build_s", run.build_s},
                                 {"measure_s", run.measure_s},
                                 {"update_s", run.update_s}}
                                .dump()
                                .c_str());
        std::fflush(stdout);
      }
    }
  }
  return absl::OkStatus();
}

absl::Status RunTime(const TimeFlags& flags) {
  HEDDLE_ASSIGN_OR_RETURN(const Target target, codegen::ResolveTarget(Target{}));
  HEDDLE_ASSIGN_OR_RETURN(const machine::TargetInfo info, codegen::DescribeTarget(target));
  ConfineTo({AllowedCpus().front()});
  for (const std::string& name : flags.names) {
    HEDDLE_ASSIGN_OR_RETURN(const std::vector<Workload> workloads, FindWorkloads(name));
    if (workloads.size() != 1) return absl::InvalidArgumentError(name + " is a model");
    for (const std::string& method : flags.methods) {
      HEDDLE_ASSIGN_OR_RETURN(const cost_model::Method variant, ParseVariant(method));
      HEDDLE_ASSIGN_OR_RETURN(const SearchTime time, TimeSearch(workloads[0].text, info, variant,
                                                                flags.records, flags.batch));
      std::fprintf(stderr, "%s, %s: %.2f s to propose, %.2f s to update, %.0f candidates/s\n",
                   name.c_str(), method.c_str(), time.propose_s, time.update_s,
                   time.candidates_per_s);
      std::printf("%s\n", json{{"operator", name},
                               {"method", method},
                               {"records", flags.records},
                               {"batch", flags.batch},
                               {"propose_s", time.propose_s},
                               {"update_s", time.update_s},
                               {"candidates_per_s", time.candidates_per_s}}
                              .dump()
                              .c_str());
      std::fflush(stdout);
    }
  }
  return absl::OkStatus();
}

}  // namespace heddle::bench
