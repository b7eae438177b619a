#pragma once

#include "absl/status/statusor.h"
#include "compiler/graph/core/graph.h"

namespace heddle::graph {

// After: (x - mean(x)) / sqrt(mean((x - mean(x))^2) + epsilon), which exporters write for layer
// normalisation, is one `normalize` operator. That is one kernel instead of five, with scale and
// offset fused.
absl::StatusOr<Graph> RecognizeNormalize(const Graph& graph);

}  // namespace heddle::graph
