#pragma once

#include "absl/status/statusor.h"
#include "compiler/graph/core/graph.h"

namespace heddle::graph {

// Channels are first. Before: the result of a channel concatenation is read only by a pool or only
// by a convolution. After: the concatenation follows the pool, where there is less to copy. A
// convolution of two concatenated parts becomes the sum of one convolution per part, if that sum is
// smaller than the parts.
absl::StatusOr<Graph> SinkConcat(const Graph& graph);

}  // namespace heddle::graph
