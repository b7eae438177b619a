#include "compiler/graph/passes/dead_code.h"

#include "compiler/graph/core/graph_builder.h"

namespace heddle::graph {

absl::StatusOr<Graph> RemoveDeadCode(const Graph& graph) { return RemoveDead(graph); }

}  // namespace heddle::graph
