// Proposal search behind one interface: what to measure next for one task.
//
// The search state is one versioned blob (search_state in worker.proto), so that any CPU worker can
// go on where another stopped: construct, Restore, Propose or Update, Save.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/strategies.h"
#include "compiler/ir/ir.h"
#include "compiler/machine/target_info.h"
#include "compiler/schedule/space.h"

namespace heddle::cost_model {

// What a model thought of a candidate when it was proposed.
struct Prediction {
  double score = 0;  // higher is faster; compares candidates of predictions with the same `samples`
  int samples = 0;   // measurements of the task that the search had learned until then
};

struct Candidate {
  std::string trace;   // text of schedule::Trace
  std::string origin;  // "default", "random", "annealing", "roofline", ..; for people
  std::optional<Prediction> prediction = std::nullopt;  // nullopt: there was no model
};

struct Result {
  std::string trace;
  bool valid = false;  // false: a candidate fault; infrastructure faults are never passed in
  double seconds = 0;  // median, when valid
};

// What a search has learned, for people.
struct SearchReport {
  struct Feature {
    std::string name;
    std::string meaning;
    double importance = 0;  // share of what all features add to the fit
  };
  int samples = 0;                // measurements it learns from
  std::vector<Feature> features;  // most important first, at most 16; empty without a model
  int other_tasks = 0;            // whose samples it began with
  int other_samples = 0;
  double other_weight = 0;      // what they say counts so much of what it did at first; 0: nothing
  bool others_mislead = false;  // they were found to be wrong, and are not used
};

class Search {
 public:
  virtual ~Search() = default;
  // Up to n candidates never proposed before, fewer (possibly none) when the space is exhausted.
  // The first candidate of a task is its default schedule. Bounded work: gives up after a fixed
  // number of redraws.
  virtual absl::StatusOr<std::vector<Candidate>> Propose(int n) = 0;
  // Learns from results, in any order; traces this search did not propose (records of others) are
  // welcome, and those that do not replay on this workload are passed over. InvalidArgument for a
  // valid result without a positive time.
  virtual absl::Status Update(const std::vector<Result>& results) = 0;
  virtual std::string Save() const = 0;
  // DataLoss for a blob that is damaged, of another version, task, strategy or search space;
  // nothing has changed then, and the caller may start afresh. The blob's seed replaces the
  // options'.
  virtual absl::Status Restore(std::string_view blob) = 0;
  virtual SearchReport Report() const { return {}; }
  // What searches of other tasks may learn from this one, for their SearchOptions.others (see
  // transfer_samples.h); empty if there is nothing to learn.
  virtual std::string TransferSamples() const { return {}; }
  // The model of the others that this search fitted when it began, for BeginWith of searches of
  // other tasks; empty if it fitted none, or goes on with a state.
  virtual std::string TransferModel() const { return {}; }
  // Begins with such a model in place of one of its own; that becomes part of the state. For a
  // search that was neither restored nor updated. DataLoss for one that is damaged, of another
  // version, or of another strategy's kind; nothing has changed then. Strategies without a model
  // have no use for it.
  virtual absl::Status BeginWith(std::string_view /*transfer_model*/) { return absl::OkStatus(); }
};

// Transfer samples of another task.
struct RelatedSamples {
  std::string samples;  // of transfer_samples.h
  double weight = 1;    // in (0, 1], of one of them; less for tasks of another kind of device
};

struct SearchOptions {
  std::string strategy{kStrategies[0]};  // one of base/strategies.h
  uint64_t seed = 0;                     // the same seed, results and calls give the same proposals
  // One of each of the other tasks; part of the state from then on. What is damaged or of another
  // version is left out.
  std::vector<RelatedSamples> others = {};
};

// InvalidArgument names the strategies.
absl::StatusOr<std::unique_ptr<Search>> MakeSearch(std::string_view workload,
                                                   const machine::TargetInfo& target,
                                                   const SearchOptions& options);

}  // namespace heddle::cost_model
