// How well the cost model ranked trials before they were measured.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/types/span.h"

namespace heddle::views {

// A trial that a model chose. Only predictions of the same job and the same `samples` are comparable.
struct PredictedTrial {
  std::string job;
  int samples = 0;       // measurements of the task that the model had learned
  double score = 0;      // higher is faster; without a unit
  double median_ns = 0;  // 0: it failed
};

// The trials that one model chose.
struct BatchAccuracy {
  std::string job;
  int samples = 0;
  int trials = 0;
  // Of the pairs whose times differ by more than 3 %, the share that was predicted in the right
  // order. A failed trial counts as slower than any other. nullopt if there is no such pair.
  std::optional<double> pairs;
  // The predicted rank of the batch's fastest trial; 1 if it was predicted to be the fastest.
  int rank_of_best = 0;
  // Spearman's correlation of the predicted with the measured ranks, from -1 to 1; equal values share
  // their mean rank. nullopt if all predictions are equal, or all times.
  std::optional<double> correlation;
  // Where each trial stands in its batch, from 0, the slowest, to 1, in the order of the trials. Empty
  // for a batch of one trial.
  struct Place {
    double predicted = 0, measured = 0;
    bool failed = false;
  };
  std::vector<Place> places;
};
// In the order of their first trials. Of a batch, the first 1024 trials count.
std::vector<BatchAccuracy> RankAccuracy(absl::Span<const PredictedTrial> trials);

// The mean of a figure over the batches that have it, each weighted by its trials; nullopt: none has.
std::optional<double> MeanOf(absl::Span<const BatchAccuracy> batches,
                             std::optional<double> BatchAccuracy::*figure);

}  // namespace heddle::views
