// The part that all search strategies share: the points of a task's space as candidates, and which
// of them were visited.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/vocabulary/target.h"
#include "compiler/ir/ir.h"
#include "compiler/machine/target_info.h"
#include "compiler/schedule/replayer.h"
#include "compiler/schedule/space.h"
#include "cost_model/blob.h"
#include "cost_model/features/statements.h"
#include "cost_model/model/model.h"
#include "cost_model/search.h"

namespace heddle::cost_model {

// Features of traces that are known beforehand, by the hash of the trace's text.
using KnownFeatures = std::unordered_map<uint64_t, std::vector<float>>;

// Samples of other tasks, to which a transfer model is fitted (transfer.h). Features are those of
// the whole table, as differences from the default schedule of their task; groups count from 1.
using OtherTasks = std::vector<Sample>;

// The task of a search.
struct Task {
  ir::Program naive;
  machine::TargetInfo target;
  std::unique_ptr<schedule::Space> space;
  schedule::Trace default_trace;
  uint64_t identity = 0;  // hash of workload, target and space; states of another one are refused
  std::shared_ptr<const OtherTasks> others = nullptr;
  std::shared_ptr<const KnownFeatures> known_features =
      nullptr;  // these traces are known to replay
};

// InvalidArgument for a workload that does not parse or verify.
absl::StatusOr<Task> MakeTask(std::string_view workload, const machine::TargetInfo& target);

// A feasible point: its trace replays.
struct Drawn {
  schedule::Point point;
  uint64_t hash = 0;  // of the trace's text; points with one trace are one candidate
  std::string trace;
};

// A feasible point with its features.
struct Evaluated {
  uint64_t hash = 0;
  std::vector<float> features;
};

// Features and canonical hash of any trace. InvalidArgument or FailedPrecondition if it does not
// parse or replay.
absl::StatusOr<Evaluated> EvaluateTrace(const ir::Program& naive, const machine::TargetInfo& target,
                                        std::string_view trace);

class CandidateSpace {
 public:
  CandidateSpace(Task task, uint64_t seed);

  const schedule::Space& space() const { return *task_.space; }
  const OtherTasks* others() const { return task_.others.get(); }
  const machine::TargetInfo& target() const { return task_.target; }
  // Features of the default schedule; zeros if it does not replay.
  std::vector<float> DefaultFeatures();
  uint64_t seed() const { return state_.seed; }

  // Every call of Propose has its own generator, made from the seed and the number of calls so far.
  // So the state of a generator never has to be saved.
  schedule::Rng NextRng();

  // The default schedule, once, unless a record of it is known.
  std::optional<Candidate> TakeDefault();
  // The point of the default schedule; nullopt if the preferred decisions of the space expand to
  // another trace.
  std::optional<schedule::Point> DefaultPoint() const;
  // Whether the hash is that of the default schedule's text.
  bool IsDefault(uint64_t hash) const;

  // Up to `n` random unvisited points, which become visited. If a bounded number of draws finds too
  // few, a small space is enumerated, so that its last points are found.
  std::vector<Drawn> TakeRandom(int n, schedule::Rng& rng);
  // The point as a candidate, which becomes visited. nullopt if it is infeasible or already
  // visited.
  std::optional<Drawn> Take(const schedule::Point& point);

  bool Visited(uint64_t hash) const { return state_.visited.contains(hash); }
  void MarkVisited(uint64_t hash) { state_.visited.insert(hash); }

  // Features of the program that the point expands to; null if infeasible. The result is cached and
  // stays valid until ForgetEvaluations.
  const Evaluated* Evaluate(const schedule::Point& point);
  // Different points that Evaluate was called with since the last ForgetEvaluations.
  int fresh_evaluations() const { return fresh_; }
  void ForgetEvaluations();

  // Like the free function, but cached.
  absl::StatusOr<Evaluated> EvaluateTrace(std::string_view trace);

  // The state that has to be kept between calls.
  struct State {
    uint64_t seed = 0;
    uint64_t calls = 0;
    bool default_taken = false;
    bool exhausted =
        false;  // enumeration found no unvisited point; points never become unvisited again
    std::unordered_set<uint64_t> visited;
  };
  void Save(BlobWriter& writer) const;
  // DataLoss for the state of another task, or a malformed one.
  absl::StatusOr<State> Parse(BlobReader& reader) const;
  void Adopt(State state) { state_ = std::move(state); }

 private:
  const std::vector<float>* Known(uint64_t hash) const;
  void Enumerate(int n, schedule::Rng& rng, std::vector<Drawn>& out);
  // Features of a trace whose text has that hash; null if it does not replay.
  const Evaluated* EvaluateReplayed(uint64_t hash, const schedule::Trace& trace);

  Task task_;
  schedule::Replayer replayer_;  // of the task's naive program
  KnownStatements statements_;
  State state_;
  struct Seen {
    uint64_t round = 0;  // the last round in which Evaluate was called with the point
    const Evaluated* evaluated = nullptr;
  };
  std::unordered_map<std::string, Seen> seen_;
  std::unordered_map<uint64_t, std::optional<Evaluated>>
      evaluated_;  // by hash of the trace, which several points may share
  uint64_t round_ = 1;
  int fresh_ = 0;
};

// Points in a blob.
void SavePoint(const schedule::Point& point, BlobWriter& writer);
schedule::Point LoadPoint(BlobReader& reader);
// Whether the space has this point. A state may come from another version of the space.
bool InSpace(const schedule::Space& space, const schedule::Point& point);

}  // namespace heddle::cost_model
