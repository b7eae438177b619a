#pragma once

#include "absl/status/statusor.h"
#include "compiler/graph/core/graph.h"

namespace heddle::graph {

// Before: a channels-last value is transposed to the model's layout and flattened for a product
// with a constant matrix. After: it is flattened without the transpose, and the rows of the matrix
// are permuted to match.
absl::StatusOr<Graph> FoldFlatten(const Graph& graph);

}  // namespace heddle::graph
