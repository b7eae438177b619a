// Evaluating operators on constants, straight from their tensor expressions: no loops, no schedule,
// no code generation. Constant folding and the importer's shape arithmetic use it, and tests use it
// as an oracle for fusion and layout passes.
#pragma once

#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/graph/core/graph.h"
#include "compiler/tensor/expression.h"

namespace heddle::graph {

// The outputs of `program` on its inputs (types must match: InvalidArgument). Internal if an index
// leaves its tensor. Tens of millions of expression nodes a second.
absl::StatusOr<std::vector<TensorData>> EvaluateProgram(const tensor::TensorProgram& program,
                                                        std::span<const TensorData> inputs);

// The result of one operator. Tensors may have extents of zero here, so that shape arithmetic on
// scalars works.
absl::StatusOr<TensorData> EvaluateOp(std::string_view op, const Attrs& attrs,
                                      std::span<const TensorData> inputs);

// Every output of a graph, node by node. `inputs` in the graph's order.
absl::StatusOr<std::vector<TensorData>> EvaluateGraph(const Graph& graph,
                                                      std::span<const TensorData> inputs);

// About how many expression nodes evaluating the operator visits; for deciding whether to.
double EvaluationCost(std::string_view op, const Attrs& attrs, std::span<const TensorType> inputs);

}  // namespace heddle::graph
