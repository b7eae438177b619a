// Learning from other tasks. A transfer model is fitted once to samples of other tasks; it compares
// samples only within a task. Its scores are the priors (Sample::prior) from which the search's own
// model starts, so that this one learns only the difference. The priors lose weight as the search
// measures more candidates. They are dropped if the transfer model proves misleading.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cost_model/blob.h"
#include "cost_model/model/model.h"
#include "cost_model/model/samples.h"
#include "cost_model/search/candidate_space.h"
#include "cost_model/transfer/transfer_samples.h"

namespace heddle::cost_model {

// Share of the sample pairs with different scores that `thought` puts into the same order; a tie in
// `thought` counts half. 1 if no pair has different scores.
double PairsInOrder(const std::vector<Sample>& samples, const std::vector<float>& thought);

class Transfer {
 public:
  // Most samples that one fit uses. Each task contributes at most an equal part, spread evenly over
  // its samples in their order. A task with one sample has no pair to learn from and is left out.
  static constexpr size_t kMaxSamples = 4096;
  // The weight of the transfer model halves with every kHalving samples of the search's own. A
  // weight below kLeastTrust counts as 0. (AutoTVM's numbers.)
  static constexpr double kHalving = 64;
  static constexpr double kLeastTrust = 0.05;
  // The numbers of own samples at which the transfer model is validated. It must order more than
  // kLeastPairs of the pairs as they were measured. The threshold was chosen on only two
  // development tables.
  static constexpr size_t kValidatedAt[] = {16, 32, 64};
  static constexpr double kLeastPairs = 0.7;

  // Chooses the samples that a fit uses. Features are those of the whole table.
  static std::vector<Sample> Choose(const OtherTasks& others);

  explicit Transfer(const ModelSpec& spec, uint64_t seed);
  // Fits the transfer model to samples with features as a model sees them. Their priors are used.
  absl::Status Learn(const std::vector<Sample>& samples);
  // Fits it to all samples of the pages (Search::LearnFrom), and takes them all.
  absl::Status Learn(PagedSamples* samples, const std::string& folder);

  int tasks() const { return tasks_; }      // tasks that it learned from
  int samples() const { return samples_; }  // samples of these tasks
  bool misleads() const { return misleads_; }
  bool Active() const { return model_->trained() && !misleads_; }
  // Weight of the transfer model's scores in a search with `own` samples; 0 means they are ignored.
  double TrustAt(size_t own) const;

  // The transfer model's scores for features in the form it was fitted to; zeros unless it is
  // active.
  absl::StatusOr<std::vector<float>> Predict(std::span<const std::vector<float>> features) const;
  std::vector<double> Importance() const { return model_->Importance(); }

  // Validates the transfer model when `own` has reached the next number in kValidatedAt: its scores plus
  // the priors of `own` must put the samples into the right order. Waits while all scores are
  // equal. A model that was found to mislead stays switched off.
  absl::Status Validate(const std::vector<Sample>& own);

  // Forgets the validation, before the model is used for another task.
  void ForgetValidation() { validated_ = 0, misleads_ = false; }

  void Save(BlobWriter& writer) const;
  // DataLoss if it is malformed or of another kind of model; changes nothing then.
  absl::Status Load(BlobReader& reader);

 private:
  ModelSpec spec_;
  uint64_t seed_;
  std::unique_ptr<Model> model_;
  int tasks_ = 0;
  int samples_ = 0;
  size_t validated_ = 0;  // the number in kValidatedAt of the last validation; 0 before the first
  bool misleads_ = false;
};

}  // namespace heddle::cost_model
