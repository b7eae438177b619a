// Assigns a place in a module to every value of a fused graph. Internal to this folder.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/files/shared_bytes.h"
#include "compiler/graph/fusion/fuse.h"
#include "compiler/graph/fusion/memory_plan.h"
#include "compiler/runtime/module.h"

namespace heddle::internal {

struct Places {
  // For every value that a group reads or writes.
  std::map<graph::ValueId, runtime::BufferSlot> slots;
  // Constants in the order of the module's parameters, each at the next 64-byte boundary. Equal ones
  // are there once.
  std::vector<SharedBytes> params;
  // Those of them that the module's file holds in packed form.
  std::vector<runtime::PackedParam> packed;
  // Outputs that no kernel writes (an input, a constant, an output that is named twice), as {from,
  // to}. They are copied after the last group.
  std::vector<std::pair<graph::ValueId, runtime::BufferSlot>> copies;
};

// A view has the place of the value whose memory it shares. Internal: the fused graph or the plan
// contradicts itself.
absl::StatusOr<Places> AssignPlaces(const graph::FusedGraph& fused, const graph::MemoryPlan& plan);

}  // namespace heddle::internal
