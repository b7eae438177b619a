// The weights of convolutions in the order that each layout reads them. Internal to this folder.
#pragma once

#include "absl/status/statusor.h"
#include "compiler/graph/core/graph_builder.h"

namespace heddle::graph {

// Weights [O, I, k..] as [O/b, I/b, k.., b, b], without what belongs to the side that is not in
// blocks: [O/b, k.., I, b] or [I/b, k.., b, O]. Preconditions: some side is, and b divides it.
absl::StatusOr<ValueId> BlockWeights(GraphBuilder& out, ValueId w, bool in_blocks, bool out_blocks,
                                     int64_t block);
// Depthwise weights [C, 1, k..] as [C/b, k.., b]. Precondition: b divides C.
absl::StatusOr<ValueId> BlockDepthwiseWeights(GraphBuilder& out, ValueId w, int64_t block);

// How many groups of a convolution become one: so many that a group's outputs fill a vector of 64
// bytes, which is what one load of weights then takes. What is multiplied by zeros grows with it:
// of small groups that fill vectors of the image evenly, code permutes such a vector instead.
int64_t MergedGroups(int64_t groups, int64_t group_inputs, int64_t group_outputs);
// Weights [O, I/groups, k..] of a convolution in groups / merged groups: each output channel reads
// the inputs of `merged` groups, those of the others through zeros.
TensorData MergeGroups(const TensorData& weights, int64_t groups, int64_t merged);

}  // namespace heddle::graph
