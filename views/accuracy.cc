#include "views/accuracy.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <numeric>
#include <utility>

namespace heddle::views {
namespace {

constexpr double kDiffers = 1.03;
constexpr size_t kMostCompared = 1024;  // trials of a batch: the largest batch of a job

double Speed(const PredictedTrial& trial) { return trial.median_ns > 0 ? 1 / trial.median_ns : 0; }

// The rank of each value, from 0 for the smallest. Equal values share the mean of their ranks.
std::vector<double> Ranks(const std::vector<double>& values) {
  std::vector<size_t> order(values.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return values[a] < values[b]; });
  std::vector<double> ranks(values.size());
  for (size_t begin = 0; begin < order.size();) {
    size_t end = begin + 1;
    while (end < order.size() && values[order[end]] == values[order[begin]]) ++end;
    const double mean = static_cast<double>(begin + end - 1) / 2;
    for (size_t i = begin; i < end; ++i) ranks[order[i]] = mean;
    begin = end;
  }
  return ranks;
}

std::optional<double> Correlation(const std::vector<double>& a, const std::vector<double>& b) {
  const double mean = static_cast<double>(a.size() - 1) / 2;  // of ranks, whatever ties there are
  double aa = 0, bb = 0, ab = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    aa += (a[i] - mean) * (a[i] - mean);
    bb += (b[i] - mean) * (b[i] - mean);
    ab += (a[i] - mean) * (b[i] - mean);
  }
  if (aa <= 0 || bb <= 0) return std::nullopt;
  return ab / std::sqrt(aa * bb);
}

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
  const std::vector<double> predicted = Ranks(scores), measured = Ranks(speeds);
  out->correlation = Correlation(predicted, measured);
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
