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
  // The temperature falls to zero, starting from one standard deviation of the scores, or from 1.
  bool relative_temperature = true;
  double epsilon = 0.05;  // share of a batch that is random
  // Weight of diversity in Shortlist::DiverseOrder; 0 is best first, which is simplest and as good.
  double diversity = 0;
  int shortlist = 2;  // its size, in batches
  // Levels of the scores; 0: they are not rounded.
  int score_levels = kScoreLevels;
  // Share of a batch before there is a model that the analytic estimate picks, each the best of
  // `drafts` drafts. CPUs only: there is no estimate for GPUs.
  double cold_start = 0;
  int drafts = 32;
  // Share of the drafts, and of the chains without a measured start, that are one to beside_steps
  // mutations of the default schedule.
  double beside_default = 0;
  int beside_steps = 3;
  // While only the transfer model knows anything, it picks each candidate as the best of this many
  // drafts, this share of them beside the default schedule. A walk by its scores would find its
  // errors: it has seen only other tasks, mostly beside their default schedules.
  int others_drafts = 12;
  double others_beside = 1;
  // In such batches the estimate picks this share times cold_start, since transfer may mislead.
  double hedge = 0.25;
  // Trees of the transfer model (transfer.h). It is fitted only once, so it may take longer.
  ModelSpec others = {.rounds = 100};
  // Features are differences to the task's default schedule. The effect of a change carries over to
  // more operators than the effect of a number of bytes.
  bool relative = true;
  // Feature groups that the model does not see. Relation features were meant for transfer, but
  // differences serve it better, and best alone (bench/run.sh search --transfer).
  std::vector<std::string> without = {"relation"};
  // Recommended batch sizes; the caller of Propose decides. Small batches first, when the model
  // learns most from each; larger ones later, when fitting again costs more and changes less.
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
