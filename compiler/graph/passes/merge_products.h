#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "compiler/graph/core/graph.h"

namespace heddle::graph {

// Up to this number of rows, a product is bound by reading its matrix and not by arithmetic. Each
// row adds two operations per element read, and a core does about ten operations in the time it
// takes to read a byte.
inline constexpr int64_t kFewRows = 16;

// After: products of few rows that have the same left operand and different constant matrices are
// one product with the matrices side by side. The same holds for products of row slices of one
// tensor with the same matrices (the steps of an unrolled recurrence). Each result becomes a slice.
// Such products are bound by reading the matrices, which now happens once and in one stream. A
// product of many rows stays as it is, because its epilogue is worth more there.
absl::StatusOr<Graph> MergeProducts(const Graph& graph);

}  // namespace heddle::graph
