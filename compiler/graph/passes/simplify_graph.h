#pragma once

#include "absl/status/statusor.h"
#include "compiler/graph/core/graph.h"

namespace heddle::graph {

// After: no operator that does nothing (identity, cast to the same type, reshape or transpose to
// the same, ..); no reshape of a reshape, no transpose of a transpose; a transpose that moves only
// dimensions of extent one is a reshape; a reduction makes the shape that is wanted instead of
// being reshaped; zero padding before a convolution is part of it. Results are equal bit for bit.
absl::StatusOr<Graph> SimplifyGraph(const Graph& graph);

}  // namespace heddle::graph
