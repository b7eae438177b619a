#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "compiler/graph/core/graph.h"

namespace heddle::graph {

// Bytes of a second-level cache that hold a part of a matrix, next to other things. A part that
// filled the cache would evict its own beginning. It is assumed, from the 2 MiB of one core of
// recent servers, and not the target's, so that the graph and its tasks are the same for all
// targets. With a smaller cache (1 MiB, or half), what was read last comes from beyond it anyway,
// and the split costs the start of a kernel; with threads, each reads a share.
inline constexpr int64_t kNearBytes = int64_t{7} << 18;

// Before: products of few rows multiply by one constant matrix larger than kNearBytes again and
// again, as a recurrence does, and only slices of their columns are read (its gates), each of at
// most kNearBytes. After: each is one product for every run of such slices of at most kNearBytes,
// in this order and in the reverse order by turns. If every product read the matrix from its
// beginning, no part of it would be in the cache; so a product begins with the columns that the one
// before has just read.
absl::StatusOr<Graph> AlternateProducts(const Graph& graph);

}  // namespace heddle::graph
