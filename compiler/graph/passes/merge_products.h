#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "compiler/graph/core/graph.h"

namespace heddle::graph {

// Rows up to which a product is bound by reading its matrix rather than by arithmetic: each row
// adds two operations per element read, and a core does about ten operations in the time it reads a
// byte.
inline constexpr int64_t kFewRows = 16;

// After: products of few rows that share what is multiplied, each with constant matrices of its
// own, are one product with the matrices side by side; so are products of single rows of a tensor
// with the same matrices (the steps of an unrolled recurrence). Each result becomes a slice. Such
// products are bound by reading the matrices, which now happens once and in one stream; a product
// of many rows is left alone, as its epilogue is worth more there.
absl::StatusOr<Graph> MergeProducts(const Graph& graph);

}  // namespace heddle::graph
