// Static memory planning. Every intermediate value gets a fixed place in one arena, and values that
// are never alive at the same time share memory. The algorithm is MXNet's linear-time planner:
// reference counts in execution order, and a free list by size. A value lives as long as any view
// of it. The buffers of a kernel do not overlap unless its code is known to allow it; then a result
// takes the place of an input whose last read is in that kernel.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <utility>
#include <vector>

#include "compiler/graph/fusion/fuse.h"

namespace heddle::graph {

struct MemoryPlan {
  // Offsets in bytes, aligned to 64, of the intermediate values that are not views.
  std::map<ValueId, int64_t> offsets;
  int64_t arena_bytes = 0;
  int64_t unshared_bytes = 0;  // the size of the arena without sharing
  int in_place = 0;            // number of results that take the place of an input
};

// What InferenceBytes may be.
inline constexpr int64_t kAnyBytes = std::numeric_limits<int64_t>::max();

struct MemoryPlanOptions {
  bool share = true;
  // For each group, the pairs {output, input}, as indices into the group's lists, that may have the
  // same memory. Empty: no pair in any group.
  std::vector<std::vector<std::pair<int, int>>> may_overwrite = {};
};

MemoryPlan PlanMemory(const FusedGraph& fused, const MemoryPlanOptions& options = {});

// Bytes that an inference needs: constants, each once, the arena, inputs and outputs. What a module adds, such as
// packed copies of constants and the workspace of kernels, is not known before there are schedules.
int64_t InferenceBytes(const FusedGraph& fused);

}  // namespace heddle::graph
