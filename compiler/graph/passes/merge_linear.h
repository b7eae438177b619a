#pragma once

#include "absl/status/statusor.h"
#include "compiler/graph/core/graph.h"

namespace heddle::graph {

// An offset of a column is merged up to this many times what its scale makes 1: the largest by which a sum may lose accuracy.
inline constexpr double kMostMergedOffset = 16;

// After: linear operators one after another are one product, where the products have constant matrices and nothing else reads what
// is between them:
// - a factor for each column of x is multiplied into the matrix;
// - an offset for each column becomes one of the result, (x + c) W = x W + c W, if columns are scaled, too, and the offset is at
//   most kMostMergedOffset after that. A larger one would cancel in the sum what makes rows different;
// - two matrices become one, (x V + c) W = x (V W) + c W, if that is less work for a row.
// So a scaler and a linear model, or a principal component analysis, are one product and one addition. Only products of matrices
// merge, as tables are. A large matrix that several of them read stays as it is, because each would get a copy. Constants are computed
// in double precision.
absl::StatusOr<Graph> MergeLinear(const Graph& graph);

}  // namespace heddle::graph
