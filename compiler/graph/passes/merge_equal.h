#pragma once

#include "absl/status/statusor.h"
#include "compiler/graph/core/graph.h"

namespace heddle::graph {

// After: no two nodes compute the same from the same values. Nodes that only move data stay as they
// are, because each fuses into its reader, and a node that several kernels read could not.
absl::StatusOr<Graph> MergeEqual(const Graph& graph);

}  // namespace heddle::graph
