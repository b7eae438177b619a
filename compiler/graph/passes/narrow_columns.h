#pragma once

#include "absl/status/statusor.h"
#include "compiler/graph/core/graph.h"

namespace heddle::graph {

// After: what a gather with a constant vector of indices leaves out is not computed before it. In a pipeline of tables, the
// gather is a selection of features, or the columns that a forest asks; then scalers compute only these columns, encoders
// compare only with these categories, and products have only these columns of their matrix. So does a product with a constant
// matrix that has mostly rows of zeros, as sparse linear models have: it asks for the other columns of its operand, if that comes from
// encoders and so is finite.
//
// Needs of readers go back along each dimension through elementwise operators, broadcasting, concatenation, reshaping,
// transposes, slices, gathers, reductions over other dimensions, and products. All other operators, such as a softmax, are
// computed whole, and so is what they read. Results are equal bit for bit where a product's do not depend on its shape.
absl::StatusOr<Graph> NarrowColumns(const Graph& graph);

}  // namespace heddle::graph
