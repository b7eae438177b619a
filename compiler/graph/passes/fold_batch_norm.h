#pragma once

#include "absl/status/statusor.h"
#include "compiler/graph/core/graph.h"

namespace heddle::graph {

// After: there is no batch_norm with constant statistics. If it follows an operator with constant
// weights (Laws::channels_of_weights) and an optional constant bias, and nothing else reads these
// results, it becomes an addition and its factor is multiplied into the weights. Otherwise it
// becomes a multiplication and an addition. Factors are computed in double precision. The pass runs
// before the layout pass, so channels are first.
absl::StatusOr<Graph> FoldBatchNorm(const Graph& graph);

}  // namespace heddle::graph
