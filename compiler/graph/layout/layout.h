#pragma once

#include <optional>

#include "absl/status/statusor.h"
#include "compiler/graph/core/graph.h"
#include "compiler/graph/layout/layout_plan.h"
#include "compiler/machine/target_info.h"

namespace heddle::graph {

struct LayoutOptions {
  const LayoutCosts* costs = nullptr;  // estimates if null
  std::optional<Layout> all{};         // no choice: this one wherever an operator has it
  // Channels of a block of the third layout, at least 2; 0: there are two. Unset, PrepareModel
  // takes what suits the target, and AssignLayouts 0.
  std::optional<int64_t> block{};
  LayoutPlan* plan = nullptr;  // receives what was chosen, when set
};

// Before: everything is channels first, as imported. After: the operators of least common cost
// (PlanLayouts) are channels last (activations N, spatial.., C; weights [k.., I/groups, O];
// depthwise ones [k.., C]; transposed ones [k.., I, O]), so that the innermost dimension is the one
// to vectorise, or channels blocked (activations N, C/b, spatial.., b; weights [O/b, I/b, k.., b of
// the inputs, b of the outputs]; depthwise ones [C/b, k.., b]), so that neighbours in space are
// neighbours in memory, too. Channels that b does not divide, or that are a single block, stay last
// there, and the weights' dimension of them stays whole. Of those channels last, groups with fewer
// outputs than a vector has lanes are merged, up to four into one, with zeros among their weights.
// Transposes stand only where the layouts meet, once per value and layout; those of constants are
// left to constant folding. Inputs and outputs of the graph keep the model's layout.
// InvalidArgument: a block of less than two.
absl::StatusOr<Graph> AssignLayouts(const Graph& graph, const LayoutOptions& options = {},
                                    const machine::TargetInfo& target = {});

}  // namespace heddle::graph
