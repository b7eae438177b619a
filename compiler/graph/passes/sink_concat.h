#pragma once

#include "absl/status/statusor.h"
#include "compiler/graph/core/graph.h"

namespace heddle::graph {

// Before: channels are first. After: a concatenation of channels that only a pool reads follows the
// pool, where there is less to copy. One of two parts that only a convolution reads becomes the sum
// of a convolution of each part, if that sum is smaller than the parts.
absl::StatusOr<Graph> SinkConcat(const Graph& graph);

}  // namespace heddle::graph
