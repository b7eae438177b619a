// An analytic estimate of a candidate's speed, before anything was measured: the time its
// instructions and its traffic would take, whatever is longest (estimate.h). It knows no constants
// of a machine but those of the target, so that its scores order candidates of one task and mean
// nothing else.
#pragma once

#include <cstddef>
#include <vector>

namespace heddle::cost_model {

// Of FeatureTable(): log2(1 + the estimated cycles of the busiest core).
size_t EstimateColumn();

// Minus that; higher is faster. `features` are those of the whole table.
float RooflineScore(const std::vector<float>& features);

}  // namespace heddle::cost_model
