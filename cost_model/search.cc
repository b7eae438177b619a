#include "cost_model/search.h"

#include <utility>

#include "absl/status/status.h"
#include "base/status_macros.h"
#include "base/vocabulary/strategies.h"
#include "cost_model/features/features.h"
#include "cost_model/search/methods.h"
#include "cost_model/search/strategies.h"
#include "cost_model/transfer/transfer_samples.h"

namespace heddle::cost_model {
namespace {

constexpr std::string_view kSearchMagic = "HDLSEARCH";
constexpr uint32_t kSearchVersion = 7;

struct Strategy {
  std::string_view name;
  std::unique_ptr<Search> (*make)(Task task, uint64_t seed);
};
// Strategies without a model; methods.h has the others.
constexpr Strategy kModelFree[] = {
    {"genetic", MakeGeneticSearch},
    {"grid", MakeGridSearch},
    {"random", MakeRandomSearch},
};

}  // namespace

std::string StrategySearch::Save() const {
  BlobWriter w;
  w.Unsigned(static_cast<uint64_t>(kFeatureVersion));
  w.Bytes(name_);
  candidates_.Save(w);
  SaveOwn(w);
  return Seal(kSearchMagic, kSearchVersion, std::move(w).Take());
}

absl::Status StrategySearch::Restore(std::string_view blob) {
  HEDDLE_ASSIGN_OR_RETURN(const std::string_view payload,
                          Unseal(kSearchMagic, kSearchVersion, blob));
  BlobReader r(payload);
  if (r.Unsigned() != static_cast<uint64_t>(kFeatureVersion)) {
    return absl::DataLossError("search state: features of another version");
  }
  if (const std::string_view name = r.Bytes(); name != name_) {
    return absl::DataLossError("search state: of strategy '" + std::string(name) + "', not '" +
                               std::string(name_) + "'");
  }
  HEDDLE_ASSIGN_OR_RETURN(CandidateSpace::State state, candidates_.Parse(r));
  HEDDLE_RETURN_IF_ERROR(LoadOwn(r, state.seed));
  candidates_.Adopt(std::move(state));
  return absl::OkStatus();
}

void StrategySearch::MarkMeasured(const std::vector<Result>& results) {
  for (const Result& r : results) {
    const absl::StatusOr<schedule::Trace> trace = schedule::ParseTrace(r.trace);
    if (trace.ok()) candidates_.MarkVisited(HashBytes(schedule::ToText(*trace)));
  }
}

std::vector<Drawn> StrategySearch::FillWithRandom(int n, schedule::Rng& rng,
                                                  std::vector<Candidate>& out) {
  const int missing = n - static_cast<int>(out.size());
  if (missing <= 0) return {};
  std::vector<Drawn> drawn = candidates_.TakeRandom(missing, rng);
  for (const Drawn& d : drawn) out.push_back({d.trace, "random"});
  return drawn;
}

absl::StatusOr<std::unique_ptr<Search>> MakeSearchOf(Task task, std::string_view strategy,
                                                     uint64_t seed) {
  if (const Method* method = FindMethod(strategy)) {
    return MakeModelSearch(std::move(task), *method, seed);
  }
  for (const Strategy& s : kModelFree) {
    if (s.name == strategy) return s.make(std::move(task), seed);
  }
  return absl::InvalidArgumentError("no search strategy '" + std::string(strategy) +
                                    "'; it must be " + StrategyList());
}

absl::StatusOr<std::unique_ptr<Search>> MakeSearch(std::string_view workload,
                                                   const machine::TargetInfo& target,
                                                   const SearchOptions& options) {
  HEDDLE_ASSIGN_OR_RETURN(Task task, MakeTask(workload, target));
  task.others = std::make_shared<const OtherTasks>(JoinTransferSamples(options.others));
  return MakeSearchOf(std::move(task), options.strategy, options.seed);
}

}  // namespace heddle::cost_model
