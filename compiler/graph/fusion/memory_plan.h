// Static memory planning: every intermediate value gets a fixed place in one arena; values that are
// never alive together share (MXNet's linear-time planner: reference counts in execution order,
// free list by size). A value lives as long as any view of it. A kernel's buffers never overlap,
// except where its code is known to allow it: then a result takes the place of an input that is
// read there for the last time.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "compiler/graph/fusion/fuse.h"

namespace heddle::graph {

struct MemoryPlan {
  // Bytes, 64-byte aligned. Of intermediates only, and of those that are no views of others.
  std::map<ValueId, int64_t> offsets;
  int64_t arena_bytes = 0;
  int64_t unshared_bytes = 0;  // what it would take without sharing
  int in_place = 0;            // results in the place of an input
};

struct MemoryPlanOptions {
  bool share = true;
  // By group: {output, input}, indices into the group's, if that output's kernel is right when both
  // have the same memory. No groups at all: nowhere.
  std::vector<std::vector<std::pair<int, int>>> may_overwrite = {};
};

MemoryPlan PlanMemory(const FusedGraph& fused, const MemoryPlanOptions& options = {});

}  // namespace heddle::graph
