// propose and update: the stages that carry a task's search state.
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/files/blob_store.h"
#include "base/files/mapped_file.h"
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

// The pages of the stage. Those of few tasks are joined, because XGBoost works through one at a time.
class BlobPages final : public cost_model::SamplePages {
 public:
  BlobPages(const v1::StageStart& start, const v1::SearchSpec& spec) : start_(start), spec_(spec) {}

  absl::Status Rewind() override {
    next_ = 0;
    return absl::OkStatus();
  }
  absl::StatusOr<std::vector<cost_model::RelatedSamples>> Next() override {
    constexpr size_t kTasks = 64;
    std::vector<cost_model::RelatedSamples> tasks;
    while (next_ < spec_.pages_size() && tasks.size() < kTasks) {
      const v1::SamplePageRef& ref = spec_.pages(next_++);
      HEDDLE_ASSIGN_OR_RETURN(const SharedBytes bytes,
                              MapFile(BlobPath(start_.blob_folder(), ref.sha256())));
      v1::SamplePage page;
      if (!page.ParseFromArray(bytes->data(), static_cast<int>(bytes->size())))
        return absl::DataLossError(absl::StrCat("page ", ref.sha256(), " is not readable"));
      for (std::string& samples : *page.mutable_samples())
        tasks.push_back({std::move(samples), ref.weight()});
    }
    return tasks;
  }

 private:
  const v1::StageStart& start_;
  const v1::SearchSpec& spec_;
  int next_ = 0;
};

// A folder of this process's own, which is removed with all that is in it. If it cannot be made, neither
// can files in it.
class FitFolder {
 public:
  FitFolder() {
    path_ = std::filesystem::temp_directory_path(error_) / absl::StrCat("fit-", getpid());
    std::filesystem::create_directories(path_, error_);
  }
  ~FitFolder() { std::filesystem::remove_all(path_, error_); }
  std::string path() const { return path_.string(); }

 private:
  std::error_code error_;
  std::filesystem::path path_;
};

// A search whose transfer model is fitted to the pages; null, with a warning, if that fails.
absl::StatusOr<std::unique_ptr<cost_model::Search>> LearnFromPages(const v1::StageStart& start,
                                                                   const v1::SearchSpec& spec,
                                                                   StageIo& io) {
  HEDDLE_ASSIGN_OR_RETURN(std::unique_ptr<cost_model::Search> search,
                          MakeSearch(start, spec, /*with_others=*/false, io));
  BlobPages pages(start, spec);
  const FitFolder folder;
  const absl::Status learned = search->LearnFrom(&pages, folder.path());
  if (learned.ok()) return search;
  if (!absl::IsUnimplemented(learned))
    io.Warn(absl::StrCat("the search does not learn from all tasks: ", learned.message()));
  return nullptr;
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
  std::unique_ptr<cost_model::Search> search;
  if (spec.pages_size() > 0) {
    HEDDLE_ASSIGN_OR_RETURN(search, LearnFromPages(start, spec, io));
  }
  if (search == nullptr) {
    HEDDLE_ASSIGN_OR_RETURN(search, MakeSearch(start, spec, /*with_others=*/true, io));
  }
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

v1::SearchReport ReportToProto(const cost_model::SearchReport& report) {
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
  *event.mutable_report() = ReportToProto(search->Report());
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
