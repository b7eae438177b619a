// The layouts of a whole graph: the layout of each operator, and the transposes between them.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "compiler/graph/core/graph.h"
#include "compiler/graph/layout/layout_choice.h"
#include "compiler/graph/layout/layout_costs.h"

namespace heddle::graph {

// Whether a node of a channels-first graph has a form with channels last, or with channels in
// blocks of `block` (LayoutRule).
bool HasChannelsLastForm(const Graph& graph, const Node& node);
bool HasChannelsBlockedForm(const Graph& graph, const Node& node, int64_t block);
// Whether a node's result has the layout of the node. A result that lacks dimensions of the first
// operand has the model's layout.
bool MakesItsLayout(const Graph& graph, const Node& node);

struct LayoutPlan {
  struct Operator {
    std::string name;
    OpKind kind{};
    TensorType type;  // of the result, channels first
    Layout layout = Layout::kChannelsFirst;
    bool free = false;  // there was a choice of layout
    LayoutCost cost;    // set if there was a choice; kNever for a form that does not exist
  };
  struct Move {
    std::string value;
    TensorType type;  // channels first
    Layout to = Layout::kChannelsLast;
    int64_t ns = 0;
  };
  std::vector<Operator> operators;  // one for each node of the graph
  std::vector<Move> moves;  // transposes, without the reshapes between layouts that look the same
  int64_t block = 0;        // channels in a block; 0: no operator is blocked
  int64_t ns = 0;           // cost of the operators with a choice and of the transposes
  int64_t first_ns = 0, last_ns = 0;  // the same with all channels first, or last where possible
};

// The layouts of a graph, as chosen before.
struct FixedLayouts {
  int64_t block = 0;                 // channels in a block; 0: no operator is blocked
  std::map<std::string, Layout> of;  // by name of the node; all others are channels first
  bool operator==(const FixedLayouts&) const = default;
};
FixedLayouts Fixed(const LayoutPlan& plan);

// The plan that ChooseLayouts finds. If `all` is set, it is the layout of every operator that has
// it, and other operators with a choice have channels last. `block`: channels in a block, 0 for no
// blocks.
LayoutPlan PlanLayouts(const Graph& graph, const LayoutCosts& costs, int64_t block,
                       std::optional<Layout> all = std::nullopt);
// The plan with exactly these layouts. InvalidArgument: a node that has a layout is not in the graph, or
// has no form in that layout.
absl::StatusOr<LayoutPlan> PlanLayouts(const Graph& graph, const LayoutCosts& costs,
                                       const FixedLayouts& fixed);

}  // namespace heddle::graph
