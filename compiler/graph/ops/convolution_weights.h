// Brings the weights of convolutions into the order in which each layout reads them.
#pragma once

#include "absl/status/statusor.h"
#include "compiler/graph/core/graph_builder.h"

namespace heddle::graph {

// Weights [O, I, k..] as [O/b, I/b, k.., b, b]; if only one side is blocked, as [O/b, k.., I, b] or
// [I/b, k.., b, O]. Preconditions: a side is blocked, and b divides the channels of each blocked
// side.
absl::StatusOr<ValueId> BlockWeights(GraphBuilder& out, ValueId w, bool in_blocks, bool out_blocks,
                                     int64_t block);
// Depthwise weights [C, 1, k..] as [C/b, k.., b]. Precondition: b divides C.
absl::StatusOr<ValueId> BlockDepthwiseWeights(GraphBuilder& out, ValueId w, int64_t block);

// How many groups of a convolution to merge into one. Their outputs should fill a vector of `lanes`
// results, so that one load takes their weights. At most four groups are merged, because the share
// of products with zeros grows. Small groups that fill vectors of the image evenly stay as they
// are, because generated code permutes such a vector instead.
int64_t MergedGroups(int64_t groups, int64_t group_inputs, int64_t group_outputs, int64_t lanes);
// Turns weights [O, I/groups, k..] into those of the convolution with groups / merged groups. Each
// output channel reads the inputs of `merged` groups; the weights for the inputs of other groups
// are zero.
TensorData MergeGroups(const TensorData& weights, int64_t groups, int64_t merged);

}  // namespace heddle::graph
