// What a simulated worker has to do for one stage.
//
// In durable worlds it is read from the order that production would send (WorkOf): a worker there
// knows nothing but the order. In other worlds, which only measure policies, there are no orders;
// ProposedCounts then tells the little that durations and measured times depend on.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "scheduler/core/events.h"
#include "scheduler/ledger/stage_order.h"

namespace heddle::sim {

using namespace heddle::scheduler;  // NOLINT: the simulator is the scheduler's own

// The state of a simulated search. As text it is "next learned hash".
struct SearchState {
  int next = 0;       // candidates proposed so far
  int learned = 0;    // results learned so far
  uint64_t hash = 0;  // of everything learned, in order

  std::string ToText() const;
  // A text that is none gives the state of a search that begins.
  static SearchState Parse(const std::string& text);
};

// The trace of the candidate that the search of the task proposes in this state, `ahead` after the
// next one. The hash in it shows what the search had learned.
std::string TraceOf(TaskIndex task, const SearchState& state, int ahead);
// The candidate's position among all that its search proposes.
int OrdinalOf(const std::string& trace);
// What a build makes of the trace.
std::string CodeOf(const std::string& trace);

// A candidate to build or to profile.
struct CandidateWork {
  CandidateId id;
  int ordinal = 0;      // see OrdinalOf
  std::string trace{};  // empty without an order
};

struct StageWork {
  std::deque<CandidateWork> inputs;       // build, profile: what it has not begun yet
  int count = 0;                          // propose
  SearchState search;                     // propose, update: the state it begins in
  bool transferred = false;               // the search begins with what other tasks learned
  std::vector<v1::SearchResult> results;  // update
  std::vector<v1::BestTrace> best;        // compile
  bool with_default = false;              // compile
  bool with_other = false;                // compile
  v1::CompareSpec compare;                // compare
  v1::PlanSpec plan;                      // plan
  // Propose, update: where the model belongs that the stage fits to the samples it was told of.
  std::optional<PutTransferModel> fits;
};

// From an order that CompleteOrder has not seen: only what no read adds to.
StageWork WorkOf(const StageOrder& order);
CandidateWork WorkOf(const v1::StageInput& input);
// Adds what the completed order says beyond that.
void AddFetched(const StageOrder& order, StageWork* work);

// Candidates of a world without orders.
class ProposedCounts {
 public:
  void Added(const AddCandidates& add);
  void Finished(const FinishCandidate& done);
  StageWork WorkOf(const StartStage& start) const;
  CandidateWork WorkOf(JobId job, CandidateId candidate) const;

 private:
  std::map<std::pair<JobId, TaskIndex>, int> proposed_;
  absl::flat_hash_map<std::pair<int64_t, int64_t>, int> ordinals_;  // by job and open candidate
};

}  // namespace heddle::sim
