// Adds a forest to a graph.
#pragma once

#include "absl/status/statusor.h"
#include "compiler/classical/forest.h"
#include "compiler/graph/core/graph_builder.h"

namespace heddle::classical {

// x: f32 [rows, features]. Adds the columns, the trees (forest_walk), the aggregate, base and scale; returns the margins
// [rows, outputs], before the transform. InvalidArgument: as CheckForest, or x does not fit.
absl::StatusOr<graph::ValueId> EmitMargins(graph::GraphBuilder& out, graph::ValueId x,
                                           const Forest& forest);

// margins: f32 [rows, outputs]. The scores, of the same shape, after the transform.
absl::StatusOr<graph::ValueId> EmitTransform(graph::GraphBuilder& out, graph::ValueId margins,
                                             Transform transform);

}  // namespace heddle::classical
