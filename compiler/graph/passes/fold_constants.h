#pragma once

#include "absl/status/statusor.h"
#include "compiler/graph/core/graph.h"

namespace heddle::graph {

// After: a node all of whose operands are constants is a constant itself, unless computing it here
// would take seconds or its result would be much larger than its operands. A graph output stays a
// node's (a copy of the constant).
absl::StatusOr<Graph> FoldConstants(const Graph& graph);

}  // namespace heddle::graph
