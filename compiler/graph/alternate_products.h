#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "compiler/graph/graph.h"

namespace heddle::graph {

// What a second-level cache holds beside other things, about: they have 1 to 2 MiB. A part that
// fills it would evict its own beginning.
inline constexpr int64_t kNearBytes = int64_t{7} << 18;

// Before: products of few rows multiply by one constant matrix larger than kNearBytes again and
// again (a recurrence does), and only slices of their columns are read (its gates). After: each is
// one product for every run of such slices of at most kNearBytes, in this order and in the reverse
// order by turns. Read always from its beginning, a matrix larger than a cache is never found
// there; so a product begins with the columns that the one before has just read.
absl::StatusOr<Graph> AlternateProducts(const Graph& graph);

}  // namespace heddle::graph
