#pragma once

#include "absl/status/statusor.h"
#include "compiler/graph/core/graph.h"

namespace heddle::graph {

// After: there is no batch_norm with constant statistics. One that follows an operator with
// constant weights (Laws::channels_of_weights), and an optional constant bias, that nobody else
// reads becomes an addition, its factor multiplied into the weights; any other becomes a
// multiplication and an addition. Factors are computed in double precision. Runs before the layout
// pass: channels are first.
absl::StatusOr<Graph> FoldBatchNorm(const Graph& graph);

}  // namespace heddle::graph
