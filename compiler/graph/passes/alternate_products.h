// Makes successive products read a large constant matrix forwards and backwards in turn.
#pragma once

#include "absl/status/statusor.h"
#include "compiler/graph/core/graph.h"
#include "compiler/machine/core_speed.h"

namespace heddle::graph {

// Before: several products of few rows, such as those of a recurrence, multiply by the same
// constant matrix, which is larger than core.near_bytes. Only slices of their columns are read (the
// gates), each of at most core.near_bytes. After: each product becomes several, one for each run of
// such slices of at most core.near_bytes, in this order and in reverse order in turn. If a matrix
// larger than a cache is always read from its beginning, the cache never holds the columns that
// come next. In alternating order, a product begins with the columns that the previous one read
// last.
//
// On a target with a smaller second-level cache (1 MiB, or half of it), these columns come from
// beyond it anyway, and the split costs the start of more kernels. With threads, each thread reads
// a share.
absl::StatusOr<Graph> AlternateProducts(const Graph& graph, const machine::GraphCore& core = {});

}  // namespace heddle::graph
