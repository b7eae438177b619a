// The search's prior: an analytic estimate of a candidate's speed before anything is measured
// (estimate.h). Scores order the candidates of one task on one target; they mean nothing else.
#pragma once

#include <cstddef>
#include <vector>

namespace heddle::cost_model {

// The column of FeatureTable() that holds log2(1 + the estimated cycles of the busiest core).
size_t EstimateColumn();

// Minus that column; higher is faster. `features` has a value for each column of the table.
float RooflineScore(const std::vector<float>& features);

}  // namespace heddle::cost_model
