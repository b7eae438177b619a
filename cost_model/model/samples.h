// What a search knows of the candidates that were measured: the training set of its model, and
// where good points lie.
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

// Features as differences to those coded before: candidates of one task agree in most. All vectors
// of one coder have the same length.
class FeatureCoder {
 public:
  explicit FeatureCoder(size_t features) : last_(features) {}
  void Save(const std::vector<float>& features, BlobWriter& writer);
  std::vector<float> Load(BlobReader& reader);

 private:
  std::vector<int64_t> last_;
};

class SampleSet {
 public:
  // Keeps the best kMaxBest and the latest kMaxRecent: enough for the trees, and a state well under
  // a megabyte.
  static constexpr size_t kMaxBest = 1000;
  static constexpr size_t kMaxRecent = 1000;

  // A second measurement of one trace keeps the better result.
  void Add(Measured m);

  const std::vector<Measured>& all() const { return samples_; }
  // Measurements ever added: tells the states of a set apart whose size does not grow any more.
  int64_t learned() const { return learned_; }
  // Samples of one group: scores are the best time over the own, rounded to `levels` steps (0: not
  // rounded); 0 for failures. Features are those whose column is in `columns`.
  std::vector<Sample> Training(int levels, const std::vector<size_t>& columns) const;
  // Whether any two scores differ: otherwise there is nothing to rank.
  bool Rankable() const;
  // Points of the best valid samples that have one, best first.
  std::vector<schedule::Point> BestPoints(size_t n) const;

  void Save(BlobWriter& writer) const;
  // DataLoss when malformed; changes nothing then.
  absl::Status Load(BlobReader& reader);

 private:
  void Trim();

  std::vector<Measured> samples_;  // in order of arrival
  int64_t learned_ = 0;
};

}  // namespace heddle::cost_model
