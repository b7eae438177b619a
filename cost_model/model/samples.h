// The measured candidates of a search: the training set of its model, and the best points.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "compiler/schedule/space.h"
#include "cost_model/blob.h"
#include "cost_model/model/model.h"

namespace heddle::cost_model {

struct Measured {
  uint64_t hash = 0;      // of the trace
  schedule::Point point;  // empty when the search did not propose it
  std::vector<float> features;
  double seconds = 0;  // 0: it failed
};

// Encodes a feature vector as differences from the previous one, because candidates of one task
// agree in most features. All vectors of one coder have the same length.
class FeatureCoder {
 public:
  explicit FeatureCoder(size_t features) : last_(features) {}
  void Save(const std::vector<float>& features, BlobWriter& writer);
  // The reader fails for numbers that no feature has.
  std::vector<float> Load(BlobReader& reader);

 private:
  std::vector<int64_t> last_;
};

class SampleSet {
 public:
  // Keeps the best kMaxBest and the latest kMaxRecent samples: enough for the trees, and well under
  // a megabyte of state.
  static constexpr size_t kMaxBest = 1000;
  static constexpr size_t kMaxRecent = 1000;

  // If the trace was measured before, the better result is kept.
  void Add(Measured m);

  const std::vector<Measured>& all() const { return samples_; }
  // Measurements ever added. It still changes when the set no longer grows.
  int64_t learned() const { return learned_; }
  // The samples as one group. Scores are best time / own time, rounded to `levels` steps (0: not
  // rounded); 0 for failures. Features are restricted to `columns`.
  std::vector<Sample> Training(int levels, const std::vector<size_t>& columns) const;
  // Whether any two scores differ; otherwise there is nothing to rank.
  bool Rankable() const;
  // The points of the best valid samples, best first; samples without a point are skipped.
  std::vector<schedule::Point> BestPoints(size_t n) const;

  void Save(BlobWriter& writer) const;
  // DataLoss if malformed, without any change.
  absl::Status Load(BlobReader& reader);

 private:
  void Trim();

  std::vector<Measured> samples_;  // in order of arrival
  int64_t learned_ = 0;
};

}  // namespace heddle::cost_model
