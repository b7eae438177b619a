// propose and update: the stages that carry a task's search state.
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "compiler/codegen/backend.h"
#include "cost_model/search.h"
#include "cost_model/transfer/transfer_samples.h"
#include "worker/stages/chunks.h"
#include "worker/stages/machine_of.h"
#include "worker/stages/stages.h"

namespace heddle::worker {
namespace {

absl::StatusOr<std::unique_ptr<cost_model::Search>> MakeSearch(const v1::StageStart& start,
                                                               const v1::SearchSpec& spec,
                                                               bool with_others, StageIo& io) {
  HEDDLE_ASSIGN_OR_RETURN(const Target target, ParseTarget(start.target()));
  const std::optional<machine::MeasuredMachine> machine = MachineOf(start, io);
  HEDDLE_ASSIGN_OR_RETURN(const machine::TargetInfo info,
                          codegen::DescribeTarget(target, machine ? &*machine : nullptr));
  cost_model::SearchOptions options{.strategy = spec.strategy(), .seed = spec.seed()};
  if (with_others) {
    for (const v1::RelatedSamples& other : spec.others())
      options.others.push_back({other.samples(), other.weight()});
  }
  return cost_model::MakeSearch(spec.workload(), info, options);
}

// Begins a search. It learns from other tasks, by the given transfer model or by a model that it
// fits itself and hands on. That model becomes part of the search state.
absl::StatusOr<std::unique_ptr<cost_model::Search>> BeginSearch(const v1::StageStart& start,
                                                                const v1::SearchSpec& spec,
                                                                StageIo& io) {
  if (!spec.transfer_model().empty()) {
    HEDDLE_ASSIGN_OR_RETURN(std::unique_ptr<cost_model::Search> search,
                            MakeSearch(start, spec, /*with_others=*/false, io));
    const absl::Status taken = search->BeginWith(spec.transfer_model());
    if (taken.ok()) return search;
    if (!absl::IsDataLoss(taken)) return taken;
    io.Warn(absl::StrCat("the model of other tasks that the service keeps is not used: ",
                         taken.message()));
  }
  HEDDLE_ASSIGN_OR_RETURN(std::unique_ptr<cost_model::Search> search,
                          MakeSearch(start, spec, /*with_others=*/true, io));
  v1::StageEvent event;
  v1::TransferModel& others = *event.mutable_transfer_model();
  others.set_model(search->TransferModel());
  if (others.model().empty()) return search;
  others.set_version(cost_model::TransferSamplesVersion());
  others.set_tasks(search->Report().other_tasks);
  others.set_samples(search->Report().other_samples);
  io.Write(event);
  return search;
}

// Continues a search from its state. If the state cannot be used, what was learned is lost, but not
// the job.
absl::StatusOr<std::unique_ptr<cost_model::Search>> ResumeSearch(const v1::StageStart& start,
                                                                 const v1::SearchSpec& spec,
                                                                 StageIo& io) {
  HEDDLE_ASSIGN_OR_RETURN(const std::optional<std::string> state, ReadChunks(io, "state"));
  if (!state.has_value()) return BeginSearch(start, spec, io);
  HEDDLE_ASSIGN_OR_RETURN(std::unique_ptr<cost_model::Search> search,
                          MakeSearch(start, spec, /*with_others=*/false, io));
  const absl::Status restored = search->Restore(*state);
  if (restored.ok()) return search;
  if (!absl::IsDataLoss(restored)) return restored;
  io.Warn(absl::StrCat("the search starts afresh: ", restored.message()));
  return BeginSearch(start, spec, io);
}

v1::SearchReport ToProto(const cost_model::SearchReport& report) {
  v1::SearchReport proto;
  proto.set_samples(report.samples);
  for (const cost_model::SearchReport::Feature& feature : report.features) {
    v1::SearchReport::Feature* out = proto.add_features();
    out->set_name(feature.name);
    out->set_meaning(feature.meaning);
    out->set_importance(feature.importance);
  }
  proto.set_other_tasks(report.other_tasks);
  proto.set_other_samples(report.other_samples);
  proto.set_other_weight(report.other_weight);
  proto.set_transfer_misleads(report.transfer_misleads);
  return proto;
}

}  // namespace

absl::Status RunPropose(const v1::StageStart& start, StageIo& io) {
  const v1::ProposeSpec& spec = start.propose();
  HEDDLE_ASSIGN_OR_RETURN(const std::unique_ptr<cost_model::Search> search,
                          ResumeSearch(start, spec.search(), io));
  HEDDLE_ASSIGN_OR_RETURN(const std::vector<cost_model::Candidate> candidates,
                          search->Propose(spec.count()));
  v1::StageEvent event;
  event.mutable_candidates()->set_exhausted(static_cast<int>(candidates.size()) < spec.count());
  for (const cost_model::Candidate& candidate : candidates) {
    v1::Candidate* out = event.mutable_candidates()->add_candidates();
    out->set_trace(candidate.trace);
    out->set_origin(candidate.origin);
    if (!candidate.prediction) continue;
    out->mutable_prediction()->set_score(candidate.prediction->score);
    out->mutable_prediction()->set_samples(candidate.prediction->samples);
  }
  io.Write(event);
  WriteChunks(io, "state", search->Save());
  return absl::OkStatus();
}

absl::Status RunUpdate(const v1::StageStart& start, StageIo& io) {
  const v1::UpdateSpec& spec = start.update();
  HEDDLE_ASSIGN_OR_RETURN(const std::unique_ptr<cost_model::Search> search,
                          ResumeSearch(start, spec.search(), io));
  std::vector<cost_model::Result> results;
  for (const v1::SearchResult& result : spec.results()) {
    results.push_back(
        {.trace = result.trace(), .valid = result.valid(), .seconds = result.median_ns() * 1e-9});
  }
  HEDDLE_RETURN_IF_ERROR(search->Update(results));
  v1::StageEvent event;
  *event.mutable_report() = ToProto(search->Report());
  io.Write(event);
  v1::TransferSamples* transfer_samples = event.mutable_transfer_samples();
  transfer_samples->set_samples(search->TransferSamples());
  transfer_samples->set_measured(search->Report().samples);
  transfer_samples->set_version(cost_model::TransferSamplesVersion());
  io.Write(event);
  WriteChunks(io, "state", search->Save());
  return absl::OkStatus();
}

}  // namespace heddle::worker
