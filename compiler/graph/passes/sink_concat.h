#pragma once

#include "absl/status/statusor.h"
#include "compiler/graph/core/graph.h"

namespace heddle::graph {

// Before: channels first. After: a concatenation of channels that only a pool reads stands behind
// the pool, where there is less to copy; one of two parts that only a convolution reads is gone:
// the sum of a convolution of each part, where that is less than the parts.
absl::StatusOr<Graph> SinkConcat(const Graph& graph);

}  // namespace heddle::graph
