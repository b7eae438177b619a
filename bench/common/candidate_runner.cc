#include "bench/common/candidate_runner.h"

#include <nlohmann/json.hpp>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/status_macros.h"
#include "bench/common/fork_map.h"
#include "compiler/driver/compile.h"
#include "compiler/measure/measure.h"

namespace heddle::bench {
namespace {

using nlohmann::json;

}  // namespace

std::string Pack(const codegen::Artifact& artifact) {
  json kernels = json::array();
  for (const codegen::KernelInfo& kernel : artifact.kernels) {
    json arguments = json::array();
    for (const codegen::Argument& argument : kernel.arguments) {
      arguments.push_back({argument.name, argument.bytes});
    }
    json launches = json::array();
    for (const runtime::GpuLaunch& launch : kernel.launches) {
      json taken = json::array();
      for (const runtime::GpuArgument& a : launch.arguments)
        taken.push_back({a.buffer, a.workspace_offset});
      launches.push_back(
          {launch.symbol, launch.grid, launch.block, launch.dynamic_shared_bytes, taken});
    }
    kernels.push_back({kernel.symbol, kernel.workspace_bytes, arguments, launches});
  }
  const std::string& code = artifact.shared_object;
  const runtime::Numerics& numerics = artifact.numerics;
  const json packed = {
      {"kernels", kernels},
      {"numerics", {numerics.winograd, numerics.tf32, numerics.tensor_cores, numerics.sum_terms}},
      {"code", json::binary({code.begin(), code.end()})}};
  const std::vector<uint8_t> bytes = json::to_cbor(packed);
  return std::string(bytes.begin(), bytes.end());
}

codegen::Artifact Unpack(const std::string& packed) {
  const json fields = json::from_cbor(packed);
  codegen::Artifact artifact;
  const auto& code = fields.at("code").get_binary();
  artifact.shared_object.assign(code.begin(), code.end());
  const json& numerics = fields.at("numerics");
  artifact.numerics = {.winograd = numerics.at(0),
                       .tf32 = numerics.at(1),
                       .tensor_cores = numerics.at(2),
                       .sum_terms = numerics.at(3)};
  for (const json& kernel : fields.at("kernels")) {
    codegen::KernelInfo& info = artifact.kernels.emplace_back();
    info.symbol = kernel.at(0);
    info.workspace_bytes = kernel.at(1);
    for (const json& argument : kernel.at(2)) {
      info.arguments.push_back({argument.at(0), argument.at(1)});
    }
    for (const json& launch : kernel.at(3)) {
      runtime::GpuLaunch& added = info.launches.emplace_back();
      added.symbol = launch.at(0);
      added.grid = launch.at(1);
      added.block = launch.at(2);
      added.dynamic_shared_bytes = launch.at(3);
      for (const json& a : launch.at(4)) added.arguments.push_back({a.at(0), a.at(1)});
    }
  }
  return artifact;
}

CandidateRunner::CandidateRunner(const std::string& workload, const machine::TargetInfo& target,
                                 Options options)
    : workload_(workload), target_(target), options_(std::move(options)) {}

std::vector<absl::StatusOr<std::string>> CandidateRunner::Build(
    const std::vector<std::string>& traces) const {
  std::vector<std::vector<int>> core_sets;
  for (const int cpu : options_.build_cpus) core_sets.push_back({cpu});
  return ForkMap(
      static_cast<int>(traces.size()), core_sets, options_.limit,
      [&](int i) -> absl::StatusOr<std::string> {
        HEDDLE_ASSIGN_OR_RETURN(
            const codegen::Artifact artifact,
            BuildCandidate(workload_, ScheduleChoice::kTrace, traces[i], target_.target));
        return Pack(artifact);
      },
      absl::Now() + (options_.deadline - absl::Now()) / 2);
}

std::vector<absl::StatusOr<double>> CandidateRunner::Measure(
    const std::vector<std::string>& traces,
    const std::vector<absl::StatusOr<std::string>>& artifacts) const {
  MeasureOptions options;
  options.timing = options_.timing;
  options.threads = target_.target.threads;
  options.cpus = options_.cpus;
  options.device = options_.device;
  std::shared_ptr<WorkloadBench> bench;  // of the child, made at its first candidate
  const auto work = [&](int i) -> absl::StatusOr<std::string> {
    if (!artifacts[i].ok()) return artifacts[i].status();
    if (bench == nullptr) {
      HEDDLE_ASSIGN_OR_RETURN(bench, WorkloadBench::Create(workload_, options));
    }
    const codegen::Artifact artifact = Unpack(*artifacts[i]);
    HEDDLE_ASSIGN_OR_RETURN(const Measurement found, bench->Run(artifact));
    return absl::StrCat(found.timing.MedianNs());
  };
  std::vector<absl::StatusOr<double>> times;
  for (const absl::StatusOr<std::string>& text :
       ForkMap(static_cast<int>(traces.size()), {options_.cpus}, options_.limit, work,
               options_.deadline)) {
    double ns = 0;
    if (!text.ok()) {
      times.push_back(text.status());
    } else if (!absl::SimpleAtod(*text, &ns) || ns <= 0) {
      times.push_back(absl::InternalError("no time: " + *text));
    } else {
      times.push_back(ns);
    }
  }
  return times;
}

}  // namespace heddle::bench
