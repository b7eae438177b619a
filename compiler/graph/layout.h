#pragma once

#include "absl/status/statusor.h"
#include "compiler/graph/graph.h"

namespace heddle::graph {

// Before: convolutions are channels first, as imported. After: they are channels last (activations
// N, spatial.., C; weights [k.., I/groups, O]; depthwise ones [k.., C]; transposed ones [k.., I,
// O]), so that the innermost dimension is the one to vectorise. Groups with fewer outputs than a
// vector has lanes are merged, up to four into one, with zeros among their weights. Operators that
// can follow (pools, elementwise, concat, reductions, ..) take the layout of their producers;
// transposes stand only where the two meet, once per value; those of constants are left to constant
// folding. Inputs and outputs of the graph keep the model's layout.
absl::StatusOr<Graph> ChannelsLast(const Graph& graph);

}  // namespace heddle::graph
