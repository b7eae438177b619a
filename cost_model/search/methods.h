// The ways to search with a model, as data: a search differs from another only in what stands here.
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

// What is asked of the model about a candidate.
enum class Acquisition {
  kMean,                 // its score
  kExpectedImprovement,  // over the best measured score; an ensemble knows how sure it is
  kUpperBound,           // score plus one standard deviation
};

struct Method {
  std::string_view name;
  ModelSpec model;
  Walk walk = Walk::kAnnealing;
  Acquisition acquisition = Acquisition::kMean;
  // Chains (or population) and steps (or generations) bound what one Propose costs, with
  // `evaluations`: expanding, replaying and extracting features of a candidate takes some tenths of
  // a millisecond, and proposing a batch should not take longer than measuring it. AutoTVM's 128
  // chains of 500 steps assume a cheaper evaluation; chains that go on from batch to batch make up
  // for it.
  size_t chains = 64;
  int steps = 24;
  int patience = 10;  // steps without a new candidate on the shortlist before the walk ends
  int evaluations = 1536;
  size_t elites = 4;  // chains that start beside the best measured points
  // The temperature falls to zero from one standard deviation of the scores, or from 1.
  bool relative_temperature = true;
  double epsilon = 0.05;  // share of a batch that is random
  // Shortlist::DiverseOrder; 0 is best first, the simplest, and as good.
  double diversity = 0;
  int shortlist = 2;  // times the batch
  // Levels of the scores; 0: they are not rounded.
  int score_levels = kScoreLevels;
  // Share of the batches before there is a model that the analytic estimate picks, each the best of
  // so many random drafts. On CPUs: it knows no others.
  double cold_start = 0;
  int drafts = 32;
  // Share of the drafts, and of the chains that begin beside nothing measured, that are one to
  // beside_steps mutations of the default schedule.
  double beside_default = 0;
  int beside_steps = 3;
  // In batches that only other tasks know about their model picks the best of so many drafts for
  // each place, this share of them beside the default schedule. A walk after what it says would
  // find what it is most wrong about: it has seen other tasks, and those mostly beside theirs.
  int others_drafts = 12;
  double others_beside = 1;
  // Share of the estimate's picks, times cold_start, in such batches: others may mislead.
  double hedge = 0.25;
  // Of the model that is fitted to samples of other tasks (transfer.h): once, so it may take
  // longer.
  ModelSpec others = {.rounds = 100};
  // Features are differences to those of the task's default schedule: what a change of it does is
  // the same for more operators than what a number of bytes does.
  bool relative = true;
  // Groups of features that the model does not see. Relation features were meant for other
  // operators; differences do that better, and better without them (bench/run.sh search
  // --transfer).
  std::vector<std::string> without = {"relation"};
  // What suits it; who calls Propose decides. Small batches at first, when the model learns most
  // from each; larger ones later, when fitting it again costs more and changes less.
  int smallest_batch = 16;
  int largest_batch = 64;
  double batch_share = 0.125;  // of what was measured
};

// A share of what was measured, within the method's bounds.
int BatchSize(const Method& method, int measured);

// The first one is the default.
std::span<const Method> Methods();
// Null if there is none of that name.
const Method* FindMethod(std::string_view name);

std::unique_ptr<Search> MakeModelSearch(Task task, const Method& method, uint64_t seed);

}  // namespace heddle::cost_model
