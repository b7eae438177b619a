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

// Scores (shares of the best throughput) are rounded to this many levels, and candidates on one
// level are not compared. A smaller difference is measurement noise near the top, and irrelevant
// far below it. This is the default wherever scores are made.
inline constexpr int kScoreLevels = 32;

// One measured candidate. score: throughput relative to the best of its group, in [0, 1]; 0 for a
// candidate that failed.
struct Sample {
  std::vector<float> features;
  float score = 0;
  int group = 0;     // pairs are compared only within a group; each task is one group
  float weight = 1;  // the same for all samples of a group
  float prior = 0;   // the score that the model starts from; the model learns the difference
};

// The loss: wrongly ordered pairs of a group, or squared errors of the score.
enum class Objective { kRank, kRegression };

// Gradient-boosted trees, or a small network (attention_model.h).
enum class ModelKind { kTrees, kAttention };

struct ModelSpec {
  ModelKind kind = ModelKind::kTrees;
  Objective objective = Objective::kRank;
  // A thousand samples are fitted in a fraction of a second on one thread. On the development
  // tables, depths 3 and 6 needed equally many trials; 3 is faster to fit.
  int rounds = 40;
  int depth = 3;
  double min_child_weight = 0.1;
  // Members of an ensemble. With more than one, each member is fitted to as many samples drawn with
  // replacement; the mean of their scores is the score, the standard deviation the uncertainty.
  int members = 1;
  // For a network: sets of features, as the model sees them, that describe similar things in the
  // same way, such as loops (LoopTokens in features.h).
  std::vector<std::vector<size_t>> tokens = {};
  bool operator==(const ModelSpec&) const = default;
};

struct Estimate {
  float score = 0;      // higher is faster
  float deviation = 0;  // uncertainty; 0 for models of one member
  bool operator==(const Estimate&) const = default;
};

class Model {
 public:
  virtual ~Model() = default;
  // Fits from scratch, replacing the earlier fit. InvalidArgument if features differ in length.
  virtual absl::Status Fit(std::span<const Sample> samples) = 0;
  // The scores to be added to the priors. All zero before the first Fit.
  virtual absl::StatusOr<std::vector<Estimate>> Predict(
      std::span<const std::vector<float>> features) const = 0;
  virtual bool trained() const = 0;
  // The importance of each feature, as a share of the sum: total gain of its splits for trees,
  // effect on the first layer for a network. Empty before the first Fit.
  virtual std::vector<double> Importance() const = 0;
  virtual std::string Serialize() const = 0;
};

// The model that `spec` describes. It is fitted on one thread, and the result repeats exactly for a
// fixed seed.
std::unique_ptr<Model> MakeModel(const ModelSpec& spec, uint64_t seed);
// DataLoss for bytes that were not made by Serialize of this version with this spec.
absl::StatusOr<std::unique_ptr<Model>> ParseModel(std::string_view bytes, const ModelSpec& spec,
                                                  uint64_t seed);

// Samples that need not fit into memory, in blocks. They are read more than once, and every pass gives the
// same.
class SampleSource {
 public:
  virtual ~SampleSource() = default;
  // Begins again with the first block.
  virtual absl::Status Rewind() = 0;
  // Replaces `block` by the next samples, which are of whole groups: no group is in two blocks. Empty: there
  // are no more.
  virtual absl::Status Next(std::vector<Sample>* block) = 0;
};

// A ranking model of trees (objective kRank, one member), fitted to all samples of a source. If `before` is
// given, a model of the same spec, its trees stay and as many are added. XGBoost keeps the features in files in
// `folder` while it works, some 9 bytes for each; memory holds a few blocks, and about 50 bytes a sample. The
// model differs a little from one that Fit makes, because the bins of features are found block by block.
// InvalidArgument for another spec, or if there are no samples.
absl::StatusOr<std::unique_ptr<Model>> FitToSource(const ModelSpec& spec, uint64_t seed,
                                                   SampleSource* source, const std::string& folder,
                                                   const Model* before = nullptr);

}  // namespace heddle::cost_model
