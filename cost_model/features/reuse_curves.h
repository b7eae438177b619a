// Context relation features (AutoTVM): the loops around a statement as a bag of points, each loop
// with how much an access touches inside it, how often it uses that again, and how often the loop
// runs; kept as curves over thresholds. A curve has the same length for every nest and order of
// loops, and means the same for every operator, so that what is learned from it transfers.
#pragma once

#include <array>
#include <cstddef>

#include "cost_model/features/statements.h"

namespace heddle::cost_model {

inline constexpr size_t kRelationBytes = 10;  // thresholds 2^6, 2^8, .. 2^24 bytes
inline constexpr size_t kRelationReuse = 7;   // thresholds 2^1, 2^3, .. 2^13

constexpr double BytesThreshold(size_t t) { return static_cast<double>(size_t{64} << (2 * t)); }
constexpr double ReuseThreshold(size_t t) { return static_cast<double>(size_t{2} << (2 * t)); }

struct Relation {
  // The largest reuse among the loops inside which the access touches at most that many bytes.
  std::array<double, kRelationBytes> reuse{};
  // How often the loops outside those run: the fewest such times.
  std::array<double, kRelationBytes> entries{};
  // The most bytes touched among the loops that use them again at most so often.
  std::array<double, kRelationReuse> touched{};
};

// Levels from a single execution (touches one element, reuse 1) to the whole nest.
Relation RelationOf(const Statement& statement, const Access& access);

}  // namespace heddle::cost_model
