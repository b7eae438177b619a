// Compares search methods on replay tables. Everything but the seconds is deterministic.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/search/replay_table.h"
#include "cost_model/search/methods.h"

namespace heddle::bench {

struct RunOptions {
  std::string strategy;                        // a strategy of cost_model/search.h
  const cost_model::Method* method = nullptr;  // if set, used instead: a changed method
  std::shared_ptr<const cost_model::OtherTasks> others = nullptr;  // if set, samples to learn from
  uint64_t seed = 0;
  int trials = 800;
  // Batches in flight. Each is proposed by a model that lacks the previous depth - 1 batches.
  int depth = 1;
};

// The search that the options describe.
absl::StatusOr<std::unique_ptr<cost_model::Search>> MakeSearchFor(cost_model::Task task,
                                                                  const RunOptions& options);
int BatchSizeOf(const RunOptions& options, int measured);

struct SearchRun {
  // After each trial: best time in the table / best time so far; 0 before a valid one. The default
  // schedule, the first trial of every search, counts in neither: it needs no search, and where
  // nothing beats it, every search would look perfect. Shorter than `trials` if the table ends.
  std::vector<double> best;
  double untuned = 0;  // the same for the default schedule; above 1 if it beats the table
  double propose_s = 0;
  double update_s = 0;
};

// `each` records of each table, drawn by the seed and weighted as the service weights those of
// another number of threads. Tables of the same workload and target are left out: they contain the
// answer.
std::shared_ptr<const cost_model::OtherTasks> TakeOthers(
    const std::vector<std::unique_ptr<ReplayProblem>>& sources, const ReplayProblem& target,
    int each, uint64_t seed, bool relative = true);

absl::StatusOr<SearchRun> RunSearch(const ReplayProblem& problem, const RunOptions& options);

// The cost of the search itself, on the real space of a workload and one thread.
struct SearchTime {
  // Medians over batches of the time of a service stage: making the search, restoring its state,
  // proposing or learning, and saving the state.
  double propose_s = 0;
  double update_s = 0;
  // Distinct feasible candidates from random points: expanded, replayed, with features extracted.
  // The time for infeasible and repeated points is included.
  double candidates_per_s = 0;
};
// With `records` samples of artificial times, and batches of `batch`.
absl::StatusOr<SearchTime> TimeSearch(const std::string& workload,
                                      const machine::TargetInfo& target,
                                      const cost_model::Method& method, int records, int batch);

// How well a model ranks candidates that it was not fitted to.
struct RankQuality {
  double pairs = 0;   // share of pairs in order, among those that differ by over 3 %
  double recall = 0;  // share of the 64 best that it ranks among its 64 best
  double first = 0;   // candidates in its order until one has 95 % of the best speed
  double regret =
      0;  // 1 - the best speed of the first 16 in its order, as a share of the best speed
  double correlation = 0;  // Spearman's, of scores and speeds; 0 where all of one side are equal
};

struct RankOptions {
  cost_model::ModelSpec model = {};
  bool roofline = false;  // the analytic estimate instead of the model
  int score_levels = cost_model::kScoreLevels;
  std::vector<std::string> without = {};  // feature groups to leave out
  bool relative = true;                   // features relative to the default schedule's
  int records = 256;                      // records to learn from
  uint64_t seed = 0;
};

// What a transfer model is fitted to: records of other workloads than the one that it ranks.
struct FitOptions {
  cost_model::ModelSpec model = {};
  size_t tasks = 0;    // tables, in an order that depends on the seed; 0: all
  size_t each = 0;     // records of each; 0: all
  size_t records = 0;  // not 0: records of all tables together, as many of each, instead of `each`
  size_t window =
      0;  // not 0: fitted to so many tables at a time, adding trees to those that there are
  bool streamed = false;  // from blocks, with the features on disk; windows always are
  // The model is fitted from pages of packed transfer samples, with the features on disk. A worker fits the model that
  // new tasks begin with in the same way. A search keeps kMaxTransferSamples of a task, so the records of a table count as several tasks.
  bool paged = false;
  int copies = 1;  // of each record: shows what more of them cost, and teaches nothing
  uint64_t seed = 0;
};
struct Fitted {
  RankQuality quality;
  int64_t samples = 0;
  int tasks = 0;
  double seconds = 0;   // of the fit
  double peak_mib = 0;  // of the process while it fits, beyond what it had before
};
absl::StatusOr<Fitted> FitAndRank(const std::vector<std::unique_ptr<ReplayProblem>>& sources,
                                  const ReplayProblem& problem, const FitOptions& options);

// Fitted to some records of the table and evaluated on the others.
absl::StatusOr<RankQuality> RankWithin(const ReplayProblem& problem, const RankOptions& options);
// Fitted to equally many records of each source, except those of the same workload and target.
absl::StatusOr<RankQuality> RankAcross(const std::vector<std::unique_ptr<ReplayProblem>>& sources,
                                       const ReplayProblem& problem, const RankOptions& options);

}  // namespace heddle::bench
