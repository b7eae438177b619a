#include "views/accuracy.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <utility>

#include "base/rank_correlation.h"

namespace heddle::views {
namespace {

constexpr double kDiffers = 1.03;
constexpr size_t kMostCompared = 1024;  // trials of a batch: the largest batch of a job

double Speed(const PredictedTrial& trial) { return trial.median_ns > 0 ? 1 / trial.median_ns : 0; }

void Compare(const std::vector<const PredictedTrial*>& batch, BatchAccuracy* out) {
  double right = 0, all = 0;
  const PredictedTrial* best = batch[0];
  std::vector<double> scores, speeds;
  for (const PredictedTrial* a : batch) {
    scores.push_back(a->score);
    speeds.push_back(Speed(*a));
    if (Speed(*a) > Speed(*best)) best = a;
    for (const PredictedTrial* b : batch) {
      if (Speed(*a) <= Speed(*b) * kDiffers) continue;  // a is the faster one
      all += 1;
      const double ahead = a->score - b->score;
      right += ahead > 0 ? 1 : ahead == 0 ? 0.5 : 0;
    }
  }
  out->trials = static_cast<int>(batch.size());
  if (all > 0) out->pairs = right / all;
  out->rank_of_best = 1 + static_cast<int>(std::count_if(batch.begin(), batch.end(), [&](auto* t) {
                        return t->score > best->score;
                      }));
  if (batch.size() < 2) return;
  const std::vector<double> predicted = RanksOf(scores), measured = RanksOf(speeds);
  out->correlation = RankCorrelation(predicted, measured);
  const auto last = static_cast<double>(batch.size() - 1);
  for (size_t i = 0; i < batch.size(); ++i)
    out->places.push_back({predicted[i] / last, measured[i] / last, batch[i]->median_ns <= 0});
}

}  // namespace

std::vector<BatchAccuracy> RankAccuracy(absl::Span<const PredictedTrial> trials) {
  std::vector<BatchAccuracy> found;
  std::vector<std::vector<const PredictedTrial*>> batches;
  std::map<std::pair<std::string, int>, size_t> batch_of;  // by job and samples
  for (const PredictedTrial& trial : trials) {
    const auto [at, fresh] = batch_of.try_emplace({trial.job, trial.samples}, found.size());
    if (fresh) {
      found.push_back({.job = trial.job,
                       .samples = trial.samples,
                       .pairs = {},
                       .correlation = {},
                       .places = {}});
      batches.emplace_back();
    }
    if (batches[at->second].size() < kMostCompared) batches[at->second].push_back(&trial);
  }
  for (size_t i = 0; i < found.size(); ++i) Compare(batches[i], &found[i]);
  return found;
}

std::optional<double> MeanOf(absl::Span<const BatchAccuracy> batches,
                             std::optional<double> BatchAccuracy::*figure) {
  double sum = 0, trials = 0;
  for (const BatchAccuracy& batch : batches) {
    if (batch.*figure) sum += *(batch.*figure) * batch.trials, trials += batch.trials;
  }
  return trials > 0 ? std::optional(sum / trials) : std::nullopt;
}

}  // namespace heddle::views
