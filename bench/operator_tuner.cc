#include "bench/operator_tuner.h"

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "bench/fork_map.h"
#include "compiler/compile.h"
#include "compiler/ir/status_macros.h"
#include "compiler/measure.h"
#include "cost_model/search.h"

namespace heddle::bench {
namespace {

using nlohmann::json;

// Proposing takes seconds whatever the batch, and learning wants several batches.
constexpr int kSmallestBatch = 16;
constexpr int kLargestBatch = 64;
constexpr int kWantedBatches = 10;
constexpr absl::Duration kBuildLimit = absl::Seconds(20);
constexpr absl::Duration kMeasureLimit = absl::Seconds(20);

// Short: what is slow needs no exact time, and the finalists are measured again.
runtime::TimingOptions TrialTiming() {
  runtime::TimingOptions timing;
  timing.repeats = 5;
  timing.min_repeat = absl::Milliseconds(4);
  timing.limit = absl::Milliseconds(200);
  return timing;
}

std::string Pack(const codegen::Artifact& artifact) {
  json kernels = json::array();
  for (const codegen::KernelInfo& kernel : artifact.kernels) {
    json arguments = json::array();
    for (const codegen::Argument& argument : kernel.arguments) {
      arguments.push_back({argument.name, argument.bytes});
    }
    kernels.push_back({kernel.symbol, kernel.workspace_bytes, arguments});
  }
  const std::string& code = artifact.shared_object;
  const json packed = {{"kernels", kernels}, {"code", json::binary({code.begin(), code.end()})}};
  const std::vector<uint8_t> bytes = json::to_cbor(packed);
  return std::string(bytes.begin(), bytes.end());
}

codegen::Artifact Unpack(const std::string& packed) {
  const json fields = json::from_cbor(packed);
  codegen::Artifact artifact;
  const auto& code = fields.at("code").get_binary();
  artifact.shared_object.assign(code.begin(), code.end());
  for (const json& kernel : fields.at("kernels")) {
    codegen::KernelInfo& info = artifact.kernels.emplace_back();
    info.symbol = kernel.at(0);
    info.workspace_bytes = kernel.at(1);
    for (const json& argument : kernel.at(2)) {
      info.arguments.push_back({argument.at(0), argument.at(1)});
    }
  }
  return artifact;
}

class Tuner {
 public:
  Tuner(const std::string& workload, const ir::TargetInfo& target, const TuneOptions& options)
      : workload_(workload), target_(target), options_(options) {
    for (const int cpu : options.build_cpus) build_lanes_.push_back({cpu});
  }

  absl::StatusOr<Tuned> Run() {
    HEDDLE_ASSIGN_OR_RETURN(const std::unique_ptr<cost_model::Search> search,
                            cost_model::MakeSearch(workload_, target_, {.seed = options_.seed}));
    std::vector<cost_model::Result> known;
    for (const Finalist& f : options_.known) known.push_back({f.trace, true, f.median_ns * 1e-9});
    if (!known.empty()) HEDDLE_RETURN_IF_ERROR(search->Update(known));
    const int batch_size =
        std::clamp(options_.trials / kWantedBatches, kSmallestBatch, kLargestBatch);
    for (int done = 0; done < options_.trials;) {
      HEDDLE_ASSIGN_OR_RETURN(const std::vector<cost_model::Candidate> batch,
                              search->Propose(std::min(batch_size, options_.trials - done)));
      if (batch.empty()) break;
      const std::vector<cost_model::Result> results = Measure(Build(batch), batch);
      HEDDLE_RETURN_IF_ERROR(search->Update(results));
      done += static_cast<int>(batch.size());
      if (options_.progress) {
        options_.progress(done, tuned_.finalists.empty() ? 0 : tuned_.finalists[0].median_ns);
      }
    }
    return std::move(tuned_);
  }

 private:
  std::vector<absl::StatusOr<std::string>> Build(const std::vector<cost_model::Candidate>& batch) {
    return ForkMap(static_cast<int>(batch.size()), build_lanes_, kBuildLimit,
                   [&](int i) -> absl::StatusOr<std::string> {
                     HEDDLE_ASSIGN_OR_RETURN(const codegen::Artifact artifact,
                                             BuildCandidate(workload_, ScheduleChoice::kTrace,
                                                            batch[i].trace, target_.target));
                     return Pack(artifact);
                   });
  }

  std::vector<cost_model::Result> Measure(const std::vector<absl::StatusOr<std::string>>& artifacts,
                                          const std::vector<cost_model::Candidate>& batch) {
    MeasureOptions options;
    options.timing = TrialTiming();
    options.threads = target_.target.threads;
    options.cpus = options_.cpus;
    std::shared_ptr<WorkloadBench> bench;  // of the child, made at its first candidate
    const auto work = [&](int i) -> absl::StatusOr<std::string> {
      if (!artifacts[i].ok()) return artifacts[i].status();
      if (bench == nullptr) {
        HEDDLE_ASSIGN_OR_RETURN(bench, WorkloadBench::Create(workload_, options));
      }
      codegen::Artifact artifact = Unpack(*artifacts[i]);
      artifact.winograd = UsesWinograd(batch[i].trace);
      HEDDLE_ASSIGN_OR_RETURN(const Measurement found, bench->Run(artifact));
      return absl::StrCat(found.timing.MedianNs());
    };
    const auto times =
        ForkMap(static_cast<int>(batch.size()), {options_.cpus}, kMeasureLimit, work);
    std::vector<cost_model::Result> results;
    for (size_t i = 0; i < batch.size(); ++i) results.push_back(Take(batch[i].trace, times[i]));
    return results;
  }

  cost_model::Result Take(const std::string& trace, const absl::StatusOr<std::string>& time) {
    double ns = 0;
    if (!time.ok() || !absl::SimpleAtod(*time, &ns) || ns <= 0) {
      ++tuned_.failed;
      if (tuned_.first_error.empty()) tuned_.first_error = time.status().ToString();
      return {trace, false, 0};
    }
    ++tuned_.measured;
    std::vector<Finalist>& best = tuned_.finalists;
    const auto slower = [&](const Finalist& other) { return other.median_ns > ns; };
    best.insert(std::find_if(best.begin(), best.end(), slower), {trace, ns});
    if (static_cast<int>(best.size()) > options_.finalists) best.pop_back();
    return {trace, true, ns * 1e-9};
  }

  const std::string& workload_;
  const ir::TargetInfo& target_;
  const TuneOptions& options_;
  std::vector<std::vector<int>> build_lanes_;
  Tuned tuned_;
};

}  // namespace

absl::StatusOr<Tuned> Tune(const std::string& workload, const ir::TargetInfo& target,
                           const TuneOptions& options) {
  return Tuner(workload, target, options).Run();
}

}  // namespace heddle::bench
