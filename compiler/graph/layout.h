#pragma once

#include <optional>

#include "absl/status/statusor.h"
#include "compiler/graph/graph.h"
#include "compiler/graph/layout_plan.h"

namespace heddle::graph {

struct LayoutOptions {
  const LayoutCosts* costs = nullptr;  // estimates if null
  std::optional<Layout> all;           // no choice: this one wherever an operator has it
  LayoutPlan* plan = nullptr;          // receives what was chosen, when set
};

// Before: everything is channels first, as imported. After: the operators of least common cost
// (PlanLayouts) are channels last (activations N, spatial.., C; weights [k.., I/groups, O];
// depthwise ones [k.., C]; transposed ones [k.., I, O]), so that the innermost dimension is the one
// to vectorise. Groups with fewer outputs than a vector has lanes are then merged, up to four into
// one, with zeros among their weights. Transposes stand only where the layouts meet, once per
// value; those of constants are left to constant folding. Inputs and outputs of the graph keep the
// model's layout.
absl::StatusOr<Graph> AssignLayouts(const Graph& graph, const LayoutOptions& options = {});

}  // namespace heddle::graph
