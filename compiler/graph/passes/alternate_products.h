#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "compiler/graph/core/graph.h"

namespace heddle::graph {

// What a second-level cache holds beside other things, about. A part that fills it would evict its
// own beginning. An assumption, the 2 MiB of one core of recent servers, and not the target's: the
// graph and so its tasks are the same for all targets. With less (1 MiB, or half) what was read
// last comes from beyond anyway and the split costs a kernel's start; with threads each reads a
// share.
inline constexpr int64_t kNearBytes = int64_t{7} << 18;

// Before: products of few rows multiply by one constant matrix larger than kNearBytes again and
// again (a recurrence does), and only slices of their columns are read (its gates), each of at most
// kNearBytes. After: each is
// one product for every run of such slices of at most kNearBytes, in this order and in the reverse
// order by turns. Read always from its beginning, a matrix larger than a cache is never found
// there; so a product begins with the columns that the one before has just read.
absl::StatusOr<Graph> AlternateProducts(const Graph& graph);

}  // namespace heddle::graph
