#pragma once

#include "absl/status/statusor.h"
#include "compiler/graph/core/graph.h"

namespace heddle::graph {

// After: every concatenation has at most two operands. One of several is a chain: the first two, then each
// of the others. Substitutions are matched in this form.
absl::StatusOr<Graph> PairConcats(const Graph& graph);

// After: no concatenation is read only by another one along the same axis. What PairConcats takes apart is as it
// was.
absl::StatusOr<Graph> JoinConcats(const Graph& graph);

}  // namespace heddle::graph
