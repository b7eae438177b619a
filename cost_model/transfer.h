// What a search learns from other tasks: their samples join its own as groups of their own, so that
// nothing is compared across tasks, count less the more it has measured itself, and are dropped
// when they prove to mislead.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "cost_model/blob.h"
#include "cost_model/candidate_space.h"
#include "cost_model/model.h"
#include "cost_model/samples.h"

namespace heddle::cost_model {

class Transfer {
 public:
  // Samples of others that a fit takes at most: as many of each task as there is room for, evenly
  // over the order they come in. A task with one sample has no pair to learn from, and is left out.
  static constexpr size_t kMaxSamples = 1024;
  // The weight of the others halves with so many samples of one's own, and below the least they are
  // left out. (AutoTVM's numbers.)
  static constexpr double kHalving = 64;
  static constexpr double kLeastWeight = 0.05;
  // With so many samples of one's own it is judged whether the others mislead: a model of them
  // alone must order more than this share of the pairs. The share was set by two development
  // tables only.
  static constexpr size_t kJudged[] = {16, 32, 64};
  static constexpr double kLeastPairs = 0.7;

  Transfer() = default;  // of no others
  // Of `others`, which may be null, with the features of these columns.
  Transfer(const OtherTasks* others, const std::vector<size_t>& columns);

  // Whether there are any, listened to or not.
  bool KnowsOthers() const { return !others_.empty(); }
  int tasks() const;
  int samples() const { return static_cast<int>(others_.size()); }
  // Of one of them beside one of `own` samples; 0: they are not listened to.
  double WeightAt(size_t own) const;

  // Whether a search with `own` samples still listens to the others.
  bool Active(size_t own) const;
  // The others' samples, with the weight they have for a search with `own` samples of its own.
  void Append(size_t own, std::vector<Sample>& training) const;
  // Looks, at each of kJudged, whether the others mislead: fits a model of them to judge `own` by.
  // While no two of `own` differ it waits; what was found to mislead stays switched off.
  absl::Status Judge(const std::vector<Sample>& own, const ModelSpec& spec, uint64_t seed);
  bool misleads() const { return misleads_; }

  // With the others' samples, of `features` features each.
  void Save(size_t features, BlobWriter& writer) const;
  // DataLoss when malformed.
  static absl::StatusOr<Transfer> Load(size_t features, BlobReader& reader);

 private:
  std::vector<Sample> others_;
  size_t judged_ = 0;  // with so many samples of one's own
  bool misleads_ = false;
};

}  // namespace heddle::cost_model
