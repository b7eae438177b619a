// The layouts of a whole graph: which operator works in which, and what that leaves to transpose.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "compiler/graph/core/graph.h"
#include "compiler/graph/layout/layout_choice.h"
#include "compiler/graph/layout/layout_costs.h"

namespace heddle::graph {

// Whether layout.h has a channels-last form of a node of a channels-first graph.
bool HasChannelsLastForm(const Graph& graph, const Node& node);
// Whether it has a form with channels in blocks of `block`: of these operators those whose channels
// it divides, or of a convolution without groups either its inputs or its outputs.
bool HasChannelsBlockedForm(const Graph& graph, const Node& node, int64_t block);
// Whether channels in blocks of `block` are a layout of their own for a value.
bool Blocks(const TensorType& type, int64_t block);
// Whether a node's result has the layout the node works in; else it is the model's either way.
bool MakesItsLayout(const Node& node);

struct LayoutPlan {
  struct Operator {
    std::string name, op;
    TensorType type;  // of the result, channels first
    Layout layout = Layout::kChannelsFirst;
    bool free = false;  // had a choice
    LayoutCost cost;    // of what had one; kNever for a form it has not
  };
  struct Move {
    std::string value;
    TensorType type;  // channels first
    Layout to = Layout::kChannelsLast;
    int64_t ns = 0;
  };
  std::vector<Operator> operators;  // one a node of the graph
  std::vector<Move> moves;          // transposes; not the reshapes where both layouts look the same
  int64_t block = 0;                // channels of a block; 0: there were two layouts to choose from
  int64_t ns = 0;                   // of operators that had a choice, and transposes
  int64_t first_ns = 0, last_ns = 0;  // the same, were all channels first, or last where they can
};

// The plan of least cost by ChooseLayouts; with `all`, that layout wherever there is a choice.
// `block`: channels of a block, 0 for none.
LayoutPlan PlanLayouts(const Graph& graph, const LayoutCosts& costs, int64_t block,
                       std::optional<Layout> all = std::nullopt);

}  // namespace heddle::graph
