// The search methods with a model, as data. Two of them differ only in the fields of Method.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cost_model/model/model.h"
#include "cost_model/search.h"
#include "cost_model/search/candidate_space.h"

namespace heddle::cost_model {

enum class Walk {
  kAnnealing,  // chains that move by mutations, and accept worse points less and less
  kEvolution,  // a population whose children mix two parents and mutate
};

// How a candidate's value follows from the model's score.
enum class Acquisition {
  kMean,                 // the score
  kExpectedImprovement,  // over the best measured score; needs an ensemble's deviation
  kUpperBound,           // score plus one standard deviation
};

struct Method {
  std::string_view name;
  ModelSpec model;
  Walk walk = Walk::kAnnealing;
  Acquisition acquisition = Acquisition::kMean;
  // Chains (or population), steps (or generations) and `evaluations` bound the cost of one Propose.
  // Expanding and replaying a candidate and extracting its features takes some tenths of a
  // millisecond, and proposing a batch should take no longer than measuring it. AutoTVM's 128
  // chains of 500 steps assume a cheaper evaluation. Chains that continue from batch to batch make
  // up for it.
  size_t chains = 64;
  int steps = 24;
  int patience = 10;  // steps without a new candidate on the shortlist before the walk ends
  int evaluations = 1536;
  size_t elites = 4;  // chains that start beside the best measured points
  // The annealing temperature falls to 0. It starts at one standard deviation of the scores if this
  // is set, otherwise at 1.
  bool relative_temperature = true;
  double epsilon = 0.05;  // share of a batch that is random
  // Weight of diversity in Shortlist::DiverseOrder. 0 means best first, which is simplest and as
  // good.
  double diversity = 0;
  int shortlist = 2;  // size of the shortlist, in batches
  // Levels that scores are rounded to (Sample::score); 0 means no rounding.
  int score_levels = kScoreLevels;
  // Before there is a model, the analytic estimate picks this share of a batch, each candidate as
  // the best of `drafts` drafts. CPUs only: there is no estimate for GPUs.
  double cold_start = 0;
  int drafts = 32;
  // Share of the drafts that are one to beside_steps mutations away from the default schedule.
  // Chains without a measured start begin at such drafts, too.
  double beside_default = 0;
  int beside_steps = 3;
  // Before the task has a model of its own, the transfer model picks each candidate as the best of
  // others_drafts drafts; others_beside is the share of them beside the default schedule. A walk
  // guided by the transfer model would find its errors, because it has only seen other tasks, and
  // mostly candidates beside their default schedules.
  int others_drafts = 12;
  double others_beside = 1;
  // In such batches the estimate still picks hedge * cold_start of the candidates, since the
  // transfer model may mislead.
  double hedge = 0.25;
  // Trees of the transfer model (transfer.h). It is fitted only once, so it may take longer.
  ModelSpec others = {.rounds = 100};
  // Features are differences from the task's default schedule. The effect of a change carries over
  // to more operators than the effect of a number of bytes.
  bool relative = true;
  // Feature groups that the model does not see. Reuse curves ("reuse") were meant for transfer,
  // but differences from the default schedule serve it better, and best without the curves
  // (bench/run.sh search --transfer).
  std::vector<std::string> without = {"reuse"};
  // Recommended batch sizes; the caller of Propose decides. Batches are small at first, when the
  // model learns most from each, and larger later, when fitting again costs more and changes less.
  int smallest_batch = 16;
  int largest_batch = 64;
  double batch_share = 0.125;  // of the number of measurements
};

// batch_share of the measurements, within the method's bounds.
int BatchSize(const Method& method, int measured);

// The first one is the default.
std::span<const Method> Methods();
// Null if there is none of that name.
const Method* FindMethod(std::string_view name);

std::unique_ptr<Search> MakeModelSearch(Task task, const Method& method, uint64_t seed);

}  // namespace heddle::cost_model
