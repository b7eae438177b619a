// What takes values from one layout to another, and weights into each. Internal to this folder.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "compiler/graph/core/graph_builder.h"
#include "compiler/graph/layout/layout_choice.h"
#include "compiler/graph/ops/op_util.h"

namespace heddle::graph {

// Where dimension `axis` of a channels-first tensor lies when channels are last.
int64_t LastAxis(int64_t axis, int64_t rank);
// What belongs to the dimensions of a channels-first tensor, in the order channels last.
Shape ToLastOrder(const Shape& values);

// x holds a value that is `type` when channels are first, in the form it has in layout `from`; the
// result in that of `to`, another. `block`: channels of a block, which divides them if either is
// blocked. `name`: of the value.
absl::StatusOr<ValueId> MoveLayout(GraphBuilder& out, ValueId x, const TensorType& type,
                                   Layout from, Layout to, int64_t block, const std::string& name);

// Weights [O, I, k..] as [O/b, I/b, k.., b, b], without what belongs to the side that is not in
// blocks: [O/b, k.., I, b] or [I/b, k.., b, O]. Preconditions: some side is, and b divides it.
absl::StatusOr<ValueId> BlockWeights(GraphBuilder& out, ValueId w, bool in_blocks, bool out_blocks,
                                     int64_t block);
// Depthwise weights [C, 1, k..] as [C/b, k.., b]. Precondition: b divides C.
absl::StatusOr<ValueId> BlockDepthwiseWeights(GraphBuilder& out, ValueId w, int64_t block);

// How many groups of a convolution become one: enough for a group's outputs to fill a vector of
// `lanes` results, for which one load of weights is enough; at most four, as the share of
// multiplications by zeros grows. Small groups that fill vectors of the image evenly stay: code
// permutes such a vector instead.
int64_t MergedGroups(int64_t groups, int64_t group_inputs, int64_t group_outputs, int64_t lanes);
// Weights [O, I/groups, k..] of a convolution in groups / merged groups: each output channel reads
// the inputs of `merged` groups, those of the others through zeros.
TensorData MergeGroups(const TensorData& weights, int64_t groups, int64_t merged);

}  // namespace heddle::graph
