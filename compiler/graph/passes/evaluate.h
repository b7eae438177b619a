// Evaluates operators on constants: the interpreter runs their tensor expressions as naive loops.
// Constant folding and the importer's shape arithmetic use this, and tests use it as the oracle of
// passes.
#pragma once

#include <functional>
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

// The outputs of a model, computed node by node. A value is freed after its last use. `inputs` are in
// the graph's order. Outputs with lengths have the shape that the data gives them; the lengths
// themselves are not among the results. `progress` is called before each node, and once after the last.
// InvalidArgument: the inputs do not match those of the graph.
absl::StatusOr<std::vector<TensorData>> EvaluateGraph(
    const Graph& graph, std::span<const TensorData> inputs,
    const std::function<void(int done, int total)>& progress = nullptr);

// The approximate number of expression nodes that an evaluation visits; infinite if the operator
// refuses the operands.
double EvaluationCost(OpKind kind, const Attrs& attrs, std::span<const TensorType> inputs);

}  // namespace heddle::graph
