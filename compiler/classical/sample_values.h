// Values of features with which a forest is timed: rows of a table that nobody has given.
#pragma once

#include <vector>

#include "compiler/classical/forest.h"

namespace heddle::classical {

// For each feature, sorted values on both sides of what its nodes compare it with: one value below all thresholds, and quantiles of the
// thresholds, each node counting once. A row that draws each feature from its list goes through the nodes both ways, while numbers from
// one fixed range would all lie on one side of thresholds in degrees or dollars. A feature that no node asks has no values, and all
// features together have at most `most`; if `most` does not give each feature two, none has any.
// `forest` is one that CheckForest accepts. All values are finite.
std::vector<std::vector<float>> SampleValues(const Forest& forest, size_t most);

}  // namespace heddle::classical
