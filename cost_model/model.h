// The learned cost model: ranks candidates of one task by predicted speed.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace heddle::cost_model {

// One measured candidate. score: throughput relative to the best of its group, in [0, 1]; 0 for a
// candidate that failed.
struct Sample {
  std::vector<float> features;
  float score = 0;
  int group = 0;  // pairs are compared only within a group (one task)
};

class Model {
 public:
  virtual ~Model() = default;
  // Fits from scratch; replaces what was learned. InvalidArgument on features of different lengths.
  virtual absl::Status Fit(std::span<const Sample> samples) = 0;
  // Higher is faster. All zero before the first Fit.
  virtual absl::StatusOr<std::vector<float>> Predict(
      std::span<const std::vector<float>> features) const = 0;
  virtual bool trained() const = 0;
  virtual std::string Serialize() const = 0;
};

// Gradient-boosted trees by XGBoost, pairwise rank objective, one thread (never trains on a
// measuring core; repeats exactly for a fixed seed).
std::unique_ptr<Model> MakeXgboostRankModel(uint64_t seed);
// DataLoss for bytes that Serialize of this version did not make.
absl::StatusOr<std::unique_ptr<Model>> ParseXgboostRankModel(std::string_view bytes, uint64_t seed);

}  // namespace heddle::cost_model
