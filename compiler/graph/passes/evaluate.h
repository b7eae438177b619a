// Evaluates operators on constants: the interpreter runs their tensor expressions as naive loops.
// Constant folding and the importer's shape arithmetic use this, and tests use it as the oracle of
// passes.
#pragma once

#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/graph/core/graph.h"
#include "compiler/tensor/expression.h"

namespace heddle::graph {

// The outputs of `program`. InvalidArgument: the inputs do not have its types. Internal: an index
// is outside of its tensor, or a reduction has nothing to reduce.
absl::StatusOr<std::vector<TensorData>> EvaluateProgram(const tensor::TensorProgram& program,
                                                        std::span<const TensorData> inputs);

// The result of one operator. Here tensors may have extents of zero, which the arithmetic on shapes
// needs.
absl::StatusOr<TensorData> EvaluateOp(OpKind kind, const Attrs& attrs,
                                      std::span<const TensorData> inputs);

// All outputs of a graph, computed node by node. `inputs` are in the graph's order.
absl::StatusOr<std::vector<TensorData>> EvaluateGraph(const Graph& graph,
                                                      std::span<const TensorData> inputs);

// The approximate number of expression nodes that an evaluation visits; infinite if the operator
// refuses the operands.
double EvaluationCost(OpKind kind, const Attrs& attrs, std::span<const TensorType> inputs);

}  // namespace heddle::graph
