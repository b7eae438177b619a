// Search methods side by side on replay tables. Everything but the seconds is deterministic.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/search/replay_table.h"
#include "cost_model/search/methods.h"

namespace heddle::bench {

struct RunOptions {
  std::string strategy;                        // of cost_model/search.h
  const cost_model::Method* method = nullptr;  // instead, when set: one with a change
  std::shared_ptr<const cost_model::OtherTasks> others = nullptr;  // to learn from, when set
  uint64_t seed = 0;
  int trials = 800;
  // Batches in flight: each is proposed by a model that lacks depth - 1 of those before it.
  int depth = 1;
};

// As the options say.
absl::StatusOr<std::unique_ptr<cost_model::Search>> MakeSearchFor(cost_model::Task task,
                                                                  const RunOptions& options);
int BatchSizeOf(const RunOptions& options, int measured);

struct SearchRun {
  // After each trial: time of the best known of the table / best time so far; 0 before a valid one.
  // The default schedule, everybody's first trial, counts in neither: it is found without a search,
  // and where nothing known beats it, all searches would look perfect. Shorter than `trials` when
  // the table has no more.
  std::vector<double> best;
  double untuned = 0;  // the same of the default schedule; above 1: the best known is slower
  double propose_s = 0;
  double update_s = 0;
};

// `each` records of each of the tables, drawn by the seed and weighed as the service weighs those
// of another number of threads; none of tables of the target's own workload and target, which would
// tell it what it is to find.
std::shared_ptr<const cost_model::OtherTasks> TakeOthers(
    const std::vector<std::unique_ptr<ReplayProblem>>& sources, const ReplayProblem& target,
    int each, uint64_t seed, bool relative = true);

absl::StatusOr<SearchRun> RunSearch(const ReplayProblem& problem, const RunOptions& options);

// What the search itself costs, on the real space of a workload and one thread.
struct SearchTime {
  // Medians over batches, of what a stage of the service does: it makes the search anew, restores
  // its state, proposes or learns, and saves the state.
  double propose_s = 0;
  double update_s = 0;
  // Different feasible candidates of random points: expanded, replayed, their features extracted.
  // The time of points that turn out infeasible, or as candidates that were seen, is in it.
  double candidates_per_s = 0;
};
// With `records` samples of made-up times and batches of `batch`.
absl::StatusOr<SearchTime> TimeSearch(const std::string& workload,
                                      const machine::TargetInfo& target,
                                      const cost_model::Method& method, int records, int batch);

// How well a model ranks candidates that it was not fitted to.
struct RankQuality {
  double pairs = 0;   // share of the pairs that differ by over 3 % which it orders correctly
  double recall = 0;  // share of the 64 best that are among the 64 it thinks best
  double first = 0;   // candidates in its order until one has 95 % of the best speed; no default
};

struct RankOptions {
  cost_model::ModelSpec model = {};
  bool roofline = false;  // the analytic estimate instead of the model
  int score_levels = cost_model::kScoreLevels;
  std::vector<std::string> without = {};  // groups of features
  bool relative = true;                   // to the default schedule's
  int records = 256;                      // to learn from
  uint64_t seed = 0;
};

// Fitted to records of the table itself, and judged by its others.
absl::StatusOr<RankQuality> RankWithin(const ReplayProblem& problem, const RankOptions& options);
// Fitted to records of the sources, as many from each; none of its own workload and target's.
absl::StatusOr<RankQuality> RankAcross(const std::vector<std::unique_ptr<ReplayProblem>>& sources,
                                       const ReplayProblem& problem, const RankOptions& options);

}  // namespace heddle::bench
