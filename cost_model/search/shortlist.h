// The shortlist: the candidates of a walk from which a batch is chosen.
#pragma once

#include <cstdint>
#include <unordered_set>
#include <vector>

#include "compiler/schedule/space.h"

namespace heddle::cost_model {

// Standard deviation of scores, at least 1e-6. It serves as a unit for the scores of a rank model,
// which have none.
double Spread(const std::vector<float>& scores);

// The best candidates seen, best first, one for each trace. Of equal ones, the first seen is
// better.
class Shortlist {
 public:
  explicit Shortlist(size_t capacity) : capacity_(capacity) {}

  struct Entry {
    schedule::Point point;
    uint64_t hash = 0;  // of the trace
    float score = 0;
  };

  // True if the list changed.
  bool Offer(const schedule::Point& point, uint64_t hash, float score);

  const std::vector<Entry>& entries() const { return entries_; }

  // The order in which to measure the entries, as indices: AutoTVM's greedy submodular choice. Each
  // step takes the entry with the largest sum of its score (in spreads) and `diversity` times the
  // share of its decisions that no earlier entry has made. So a batch does not consist of
  // neighbours that teach the model the same.
  std::vector<size_t> DiverseOrder(double diversity) const;

 private:
  size_t capacity_;
  std::vector<Entry> entries_;
  std::unordered_set<uint64_t> hashes_;
};

}  // namespace heddle::cost_model
