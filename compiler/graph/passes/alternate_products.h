// Reads a large constant matrix forwards and backwards by turns.
#pragma once

#include "absl/status/statusor.h"
#include "compiler/graph/core/graph.h"
#include "compiler/machine/core_speed.h"

namespace heddle::graph {

// Before: products of few rows multiply by one constant matrix larger than core.near_bytes again
// and again (a recurrence does), and only slices of their columns are read (its gates), each of at
// most core.near_bytes. After: each is one product for every run of such slices of at most
// core.near_bytes, in this order and in the reverse order by turns. Read always from its
// beginning, a matrix larger than a cache is never found there; so a product begins with the
// columns that the one before has just read.
//
// On a target with a smaller second-level cache (1 MiB, or half of it) what was read last comes
// from beyond it anyway, and the split costs a kernel's start. With threads each reads a share.
absl::StatusOr<Graph> AlternateProducts(const Graph& graph, const machine::GraphCore& core = {});

}  // namespace heddle::graph
