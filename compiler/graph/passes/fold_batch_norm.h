#pragma once

#include "absl/status/statusor.h"
#include "compiler/graph/core/graph.h"

namespace heddle::graph {

// After: no batch_norm with constant statistics. Behind a convolution or matrix product with
// constant weights (and an optional constant bias) that nobody else reads, its factor is multiplied
// into the weights and an addition remains; elsewhere a multiplication and an addition. The factors
// are computed in double precision. Channels-first graphs only: runs before the layout pass.
absl::StatusOr<Graph> FoldBatchNorm(const Graph& graph);

}  // namespace heddle::graph
