// The weights of convolutions in the order that each layout reads them. Internal to this folder.
#pragma once

#include "absl/status/statusor.h"
#include "compiler/graph/core/graph_builder.h"

namespace heddle::graph {

// Weights [O, I, k..] as [O/b, I/b, k.., b, b]; if only one side is in blocks, as [O/b, k.., I, b]
// or [I/b, k.., b, O]. Preconditions: one side is in blocks, and b divides the channels that are.
absl::StatusOr<ValueId> BlockWeights(GraphBuilder& out, ValueId w, bool in_blocks, bool out_blocks,
                                     int64_t block);
// Depthwise weights [C, 1, k..] as [C/b, k.., b]. Precondition: b divides C.
absl::StatusOr<ValueId> BlockDepthwiseWeights(GraphBuilder& out, ValueId w, int64_t block);

// The number of groups of a convolution that become one: enough for their outputs to fill a vector
// of `lanes` results, so that one load takes their weights; at most four, because the share of
// products with zeros grows. Small groups that fill vectors of the image evenly stay as they are:
// generated code permutes such a vector instead.
int64_t MergedGroups(int64_t groups, int64_t group_inputs, int64_t group_outputs, int64_t lanes);
// The weights, from [O, I/groups, k..], of the convolution with groups / merged groups. Each output
// channel reads the inputs of `merged` groups; the weights of the other groups' inputs are zero.
TensorData MergeGroups(const TensorData& weights, int64_t groups, int64_t merged);

}  // namespace heddle::graph
