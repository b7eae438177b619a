// Random forests for tests.
#pragma once

#include <random>
#include <vector>

#include "compiler/classical/forest.h"

namespace heddle::classical {

// A forest that CheckForest accepts: up to 4 features, columns of every kind, trees of up to 30 inner
// nodes, some with one target and some without.
Forest RandomForest(std::mt19937_64& rng);

// A row of features that lie around the thresholds and members of RandomForest, with NaN and zeros.
std::vector<float> RandomRow(const Forest& forest, std::mt19937_64& rng);

}  // namespace heddle::classical
