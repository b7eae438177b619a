// What a search learns from other tasks: a model of their samples alone, fitted once, in which
// nothing is compared across tasks. What it says of a candidate is where the search's own model
// begins (Sample::prior), which learns what is different here. It counts less the more the search
// has measured itself, and no more when it proves to mislead.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "cost_model/blob.h"
#include "cost_model/model/model.h"
#include "cost_model/model/samples.h"
#include "cost_model/search/candidate_space.h"

namespace heddle::cost_model {

// Share of the pairs with different scores that `thought` orders as the samples' scores do; 1 if
// there is no such pair.
double PairsInOrder(const std::vector<Sample>& samples, const std::vector<float>& thought);

class Transfer {
 public:
  // Samples of others that a fit takes at most: as many of each task as there is room for, evenly
  // over the order they come in. A task with one sample has no pair to learn from, and is left out.
  static constexpr size_t kMaxSamples = 4096;
  // What the others say counts half as much with so many samples of one's own, and nothing when it
  // would count less than the least. (AutoTVM's numbers.)
  static constexpr double kHalving = 64;
  static constexpr double kLeastTrust = 0.05;
  // With so many samples of one's own it is judged whether the others mislead: what is known from
  // them must order more than this share of the pairs. The share was set by two development tables
  // only.
  static constexpr size_t kJudged[] = {16, 32, 64};
  static constexpr double kLeastPairs = 0.7;

  // Of `others`, with features of the whole table: those a fit takes.
  static std::vector<Sample> Choose(const OtherTasks& others);

  explicit Transfer(const ModelSpec& spec, uint64_t seed);
  // Learns from samples as a model sees them, their priors included.
  absl::Status Learn(const std::vector<Sample>& samples);

  int tasks() const { return tasks_; }      // that it learned from
  int samples() const { return samples_; }  // of theirs
  bool misleads() const { return misleads_; }
  bool Active() const { return model_->trained() && !misleads_; }
  // How much the others' scores count for a search with `own` samples; 0: not at all.
  double TrustAt(size_t own) const;

  // What the others' model says of features as it saw them; zeros unless it is active.
  absl::StatusOr<std::vector<float>> Predict(std::span<const std::vector<float>> features) const;
  std::vector<double> Importance() const { return model_->Importance(); }

  // Looks, at each of kJudged, whether the others mislead about `own` samples: by the others' model
  // on top of their priors. While no two of `own` differ it waits; what was found to mislead stays
  // switched off.
  absl::Status Judge(const std::vector<Sample>& own);

  // As if it had never been judged: for another task than the one it was judged by.
  void ForgetJudgement() { judged_ = 0, misleads_ = false; }

  void Save(BlobWriter& writer) const;
  // DataLoss when malformed, or of another kind of model; changes nothing then.
  absl::Status Load(BlobReader& reader);

 private:
  ModelSpec spec_;
  uint64_t seed_;
  std::unique_ptr<Model> model_;
  int tasks_ = 0;
  int samples_ = 0;
  size_t judged_ = 0;  // with so many samples of one's own
  bool misleads_ = false;
};

}  // namespace heddle::cost_model
