// The learned cost models: rank candidates of one task by predicted speed.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace heddle::cost_model {

// Candidates whose shares of the best throughput round to one of so many levels are not compared:
// such a difference is noise of the measurement near the top, and of no interest far from it. The
// default wherever scores are made.
inline constexpr int kScoreLevels = 32;

// One measured candidate. score: throughput relative to the best of its group, in [0, 1]; 0 for a
// candidate that failed.
struct Sample {
  std::vector<float> features;
  float score = 0;
  int group = 0;     // pairs are compared only within a group (one task)
  float weight = 1;  // how much it counts; the same for all samples of a group
  float prior = 0;   // what is known of its score without the model, which learns the rest
};

// What the training minimises: wrongly ordered pairs of a group, or squared errors of the score.
enum class Objective { kRank, kRegression };

// Gradient-boosted trees, or a small network (attention_model.h).
enum class ModelKind { kTrees, kAttention };

struct ModelSpec {
  ModelKind kind = ModelKind::kTrees;
  Objective objective = Objective::kRank;
  // Fits a thousand samples in a fraction of a second on one thread. On the few development tables
  // no difference in trials was seen between depths 3 and 6; 3 is fitted faster.
  int rounds = 40;
  int depth = 3;
  double min_child_weight = 0.1;
  // More than one: each is fitted to as many samples drawn with replacement; their mean is the
  // score, their standard deviation the uncertainty.
  int members = 1;
  // For a network: groups of features, as the model sees them, that say the same of things that
  // are alike, such as loops (LoopTokens in features.h).
  std::vector<std::vector<size_t>> tokens = {};
  bool operator==(const ModelSpec&) const = default;
};

struct Estimate {
  float score = 0;      // higher is faster
  float deviation = 0;  // how sure the model is; 0 for models of one member
  bool operator==(const Estimate&) const = default;
};

class Model {
 public:
  virtual ~Model() = default;
  // Fits from scratch; replaces what was learned. InvalidArgument on features of different lengths.
  virtual absl::Status Fit(std::span<const Sample> samples) = 0;
  // What is to be added to their priors. All zero before the first Fit.
  virtual absl::StatusOr<std::vector<Estimate>> Predict(
      std::span<const std::vector<float>> features) const = 0;
  virtual bool trained() const = 0;
  // How much each feature adds to the fit: total gain of its splits, relative to all; empty before
  // the first Fit.
  virtual std::vector<double> Importance() const = 0;
  virtual std::string Serialize() const = 0;
};

// Gradient-boosted trees by XGBoost, one thread (never trains on a measuring core; repeats exactly
// for a fixed seed).
std::unique_ptr<Model> MakeModel(const ModelSpec& spec, uint64_t seed);
// DataLoss for bytes that Serialize of this version, with this spec, did not make.
absl::StatusOr<std::unique_ptr<Model>> ParseModel(std::string_view bytes, const ModelSpec& spec,
                                                  uint64_t seed);

}  // namespace heddle::cost_model
