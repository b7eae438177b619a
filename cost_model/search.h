// Proposal search behind one interface: what to measure next for one task.
//
// The search state is one versioned blob (search_state in worker.proto), so that any CPU worker can
// continue where another stopped: construct, Restore, Propose or Update, Save.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/vocabulary/strategies.h"
#include "compiler/ir/ir.h"
#include "compiler/machine/target_info.h"
#include "compiler/schedule/space.h"

namespace heddle::cost_model {

// What a model thought of a candidate when it was proposed.
struct Prediction {
  // Higher is faster. Comparable only among predictions with the same `samples`.
  double score = 0;
  int samples = 0;  // measurements of the task that the search had learned by then
};

struct Candidate {
  std::string trace;   // text of schedule::Trace
  std::string origin;  // "default", "random", "annealing", "roofline", ..; shown to people
  std::optional<Prediction> prediction = std::nullopt;  // nullopt: there was no model
};

struct Result {
  std::string trace;
  bool valid = false;  // false: a candidate fault; infrastructure faults are never passed in
  double seconds = 0;  // median, when valid
};

// What a search has learned, to be shown to people.
struct SearchReport {
  struct Feature {
    std::string name;
    std::string meaning;
    double importance = 0;  // share of the importance of all features
  };
  int samples = 0;                // measurements that the search learns from
  std::vector<Feature> features;  // most important first, at most 16; empty without a model
  int other_tasks = 0;            // tasks whose transfer samples the search began with
  int other_samples = 0;
  // Weight of the transfer model now, relative to its weight at the start; 0 means it is ignored.
  double other_weight = 0;
  // The transfer model turned out to mislead the search and is no longer used.
  bool transfer_misleads = false;
};

// Transfer samples of another task.
struct RelatedSamples {
  std::string samples;  // made by PackTransferSamples (transfer_samples.h)
  // Weight of each of these samples, in (0, 1]; lower for tasks of another kind of device.
  double weight = 1;
};

// Transfer samples of any number of tasks, read page by page because they need not fit into memory.
// They are read more than once, and every pass gives the same pages.
class SamplePages {
 public:
  virtual ~SamplePages() = default;
  // Begins again with the first page.
  virtual absl::Status Rewind() = 0;
  // The tasks of the next page, each of them once in all pages. Empty: there are no more.
  virtual absl::StatusOr<std::vector<RelatedSamples>> Next() = 0;
};

class Search {
 public:
  virtual ~Search() = default;
  // Up to n candidates never proposed before, fewer (possibly none) when the space is exhausted.
  // The first candidate of a task is its default schedule. Bounded work: gives up after a fixed
  // number of redraws.
  virtual absl::StatusOr<std::vector<Candidate>> Propose(int n) = 0;
  // Learns from results, in any order. Traces that this search did not propose (records of others)
  // are welcome. Traces that do not replay on this workload are skipped. InvalidArgument for a
  // valid result without a positive time.
  virtual absl::Status Update(const std::vector<Result>& results) = 0;
  virtual std::string Save() const = 0;
  // DataLoss if the blob is damaged or comes from another version, task, strategy or search space.
  // The search is unchanged then, and the caller may start afresh. The seed of the blob replaces
  // the seed of the options.
  virtual absl::Status Restore(std::string_view blob) = 0;
  virtual SearchReport Report() const { return {}; }
  // Samples that searches of other tasks may learn from, for their SearchOptions.others (see
  // transfer_samples.h); empty if there are none.
  virtual std::string TransferSamples() const { return {}; }
  // The transfer model that this search fitted when it began, for BeginWith of searches of other
  // tasks. Empty if it fitted none, or if it was restored from a state.
  virtual std::string TransferModel() const { return {}; }
  // Uses this transfer model instead of fitting one; it becomes part of the search state. Only for
  // a search that was neither restored nor updated. DataLoss if the model is damaged or comes from
  // another version or another kind of strategy; the search is unchanged then. Strategies without a
  // model ignore the call.
  virtual absl::Status BeginWith(std::string_view /*transfer_model*/) { return absl::OkStatus(); }
  // Fits the transfer model to all tasks of the pages, instead of to SearchOptions.others. Only for
  // a search that was neither restored nor updated. Damaged tasks and those of another version are
  // skipped. While it fits, features lie in files in `folder`, some 11 bytes for each; memory holds a
  // few pages, and about 50 bytes a sample. InvalidArgument: the pages have nothing to learn from.
  // Unimplemented: the strategy has no model, or none of ranking trees. After an error the search is
  // unchanged.
  virtual absl::Status LearnFrom(SamplePages* /*pages*/, const std::string& /*folder*/) {
    return absl::UnimplementedError("this strategy does not learn from pages of samples");
  }
};

struct SearchOptions {
  std::string strategy{kStrategies[0]};  // one of base/vocabulary/strategies.h
  uint64_t seed = 0;                     // the same seed, results and calls give the same proposals
  // The transfer samples of each other task. Damaged entries and those of another version are
  // skipped. The model that is fitted to them becomes part of the search state.
  std::vector<RelatedSamples> others = {};
};

// InvalidArgument if the workload does not parse or verify, or if the strategy is unknown; the
// message then lists the known strategies.
absl::StatusOr<std::unique_ptr<Search>> MakeSearch(std::string_view workload,
                                                   const machine::TargetInfo& target,
                                                   const SearchOptions& options);

}  // namespace heddle::cost_model
