// Static memory planning: every intermediate value gets a fixed place in one arena; values that are
// never alive together share (MXNet's linear-time planner: reference counts in execution order,
// free list by size, in-place where an elementwise group reads its input for the last time).
#pragma once

#include <cstdint>
#include <map>

#include "compiler/graph/fuse.h"

namespace heddle::graph {

struct MemoryPlan {
  std::map<ValueId, int64_t> offsets;  // bytes, 64-byte aligned; intermediates only
  int64_t arena_bytes = 0;
  int64_t unshared_bytes = 0;  // what it would take without sharing
};

struct MemoryPlanOptions {
  bool share = true;
  // An elementwise group may write its result over an input that nobody reads afterwards. Back ends
  // may promise their compiler that buffers do not overlap, so this is off unless the caller knows
  // that its back end does not.
  bool in_place = false;
};

// Whether `group` may write its output over `input`: all its nodes are elementwise, input and
// output have one type, and every node that reads the input has the output's shape.
bool MayRunInPlace(const FusedGraph& fused, const Group& group, ValueId input);

MemoryPlan PlanMemory(const FusedGraph& fused, const MemoryPlanOptions& options = {});

}  // namespace heddle::graph
