#pragma once

#include "absl/status/statusor.h"
#include "compiler/graph/core/graph.h"

namespace heddle::graph {

// After: no operator copies its operand (Laws::copies); no reshape follows a reshape and no
// transpose a transpose; a transpose that moves only dimensions of extent one is a reshape; a
// reduction directly makes the shape into which its result was reshaped; zero padding before a
// convolution is part of the convolution. Results are equal bit for bit.
absl::StatusOr<Graph> SimplifyGraph(const Graph& graph);

}  // namespace heddle::graph
