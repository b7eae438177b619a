#pragma once

#include "absl/status/statusor.h"
#include "compiler/graph/core/graph.h"

namespace heddle::graph {

// After: every node and constant contributes to an output. Inputs stay, used or not: they are the
// model's interface.
absl::StatusOr<Graph> RemoveDeadCode(const Graph& graph);

}  // namespace heddle::graph
