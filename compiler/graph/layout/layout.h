#pragma once

#include <optional>

#include "absl/status/statusor.h"
#include "compiler/graph/core/graph.h"
#include "compiler/graph/layout/layout_plan.h"
#include "compiler/machine/target_info.h"

namespace heddle::graph {

struct LayoutOptions {
  const LayoutCosts* costs = nullptr;  // estimates if null
  std::optional<Layout> all{};         // if set, the layout of every operator that supports it
  // Channels in a block, at least 2. 0: no operator is blocked. If unset, PrepareModel chooses a
  // number for the target, and AssignLayouts takes 0.
  std::optional<int64_t> block{};
  const FixedLayouts* fixed = nullptr;  // if set, these layouts, and nothing is chosen
  LayoutPlan* plan = nullptr;           // receives what was chosen, if set
};

// Before: every operator is channels first, as imported. After: each operator has the layout that
// PlanLayouts chose among those that its definition offers (LayoutRule). With channels last, the
// innermost dimension is the one to vectorize; in blocks, neighbours in space are also neighbours
// in memory. Values are transposed only where layouts meet, once for each value and layout;
// constant folding computes the transposes of constants. Inputs and outputs of the graph keep the
// model's layout. InvalidArgument: a block has fewer than two
// channels, or as PlanLayouts for fixed layouts.
absl::StatusOr<Graph> AssignLayouts(const Graph& graph, const LayoutOptions& options = {},
                                    const machine::TargetInfo& target = {});

}  // namespace heddle::graph
