// Static memory planning: every intermediate value gets a fixed place in one arena; values that are
// never alive together share (MXNet's linear-time planner: reference counts in execution order,
// free list by size). A value lives as long as any view of it. A kernel's buffers never overlap,
// not even where an elementwise group reads its input for the last time: back ends promise their
// compiler that they do not.
#pragma once

#include <cstdint>
#include <map>

#include "compiler/graph/fuse.h"

namespace heddle::graph {

struct MemoryPlan {
  // Bytes, 64-byte aligned. Of intermediates only, and of those that are no views of others.
  std::map<ValueId, int64_t> offsets;
  int64_t arena_bytes = 0;
  int64_t unshared_bytes = 0;  // what it would take without sharing
};

struct MemoryPlanOptions {
  bool share = true;
};

MemoryPlan PlanMemory(const FusedGraph& fused, const MemoryPlanOptions& options = {});

}  // namespace heddle::graph
