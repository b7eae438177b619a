#pragma once

#include "absl/status/statusor.h"
#include "compiler/graph/core/graph.h"

namespace heddle::graph {

// After: a node whose operands are all constants is a constant, unless computing it would take
// seconds or its result would be much larger than its operands. A graph output stays the output of
// a node, a copy of the constant.
absl::StatusOr<Graph> FoldConstants(const Graph& graph);

}  // namespace heddle::graph
