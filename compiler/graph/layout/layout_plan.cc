#include "compiler/graph/layout/layout_plan.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"

#include "compiler/graph/core/graph_builder.h"
#include "compiler/graph/core/operator.h"

namespace heddle::graph {
namespace {

// For each value, whether it is flattened from another one and only multiplied by constant
// matrices. FoldFlatten permutes such matrices, so the other value needs no transpose.
std::vector<bool> FlattenedForConstants(const Graph& graph) {
  const std::vector<int> producers = Producers(graph), uses = UseCounts(graph);
  std::vector<bool> flattened(graph.values.size(), false);
  for (const Node& node : graph.nodes) {
    if (node.kind != OpKind::kMatmul || !graph.constants.contains(node.inputs[1]) ||
        graph.values[node.inputs[1]].type.shape.size() != 2)
      continue;
    const ValueId flat = node.inputs[0];
    const int maker = producers[flat];
    if (maker < 0 || graph.nodes[maker].kind != OpKind::kReshape || uses[flat] != 1) continue;
    const Shape& to = graph.values[flat].type.shape;
    const Shape& from = graph.values[graph.nodes[maker].inputs[0]].type.shape;
    flattened[flat] = to.size() == 2 && from.size() > 2 && to[0] == from[0];
  }
  return flattened;
}

// Collects the nodes that have a choice of layout, and the values between them.
class Planner {
 public:
  Planner(const Graph& graph, const LayoutCosts& costs, int64_t block)
      : graph_(graph), costs_(costs), block_(block), flattened_(FlattenedForConstants(graph)) {
    value_of_.assign(graph.values.size(), -1);
    for (ValueId v : graph.inputs) AddValue(v, LayoutProblem::kModel);
    for (const Node& node : graph.nodes) AddNode(node);
    for (ValueId v : graph.outputs) AddReader(v, LayoutProblem::kModel);
  }

  LayoutPlan Plan(std::optional<Layout> all) {
    return Plan(all ? Everywhere(*all) : ChooseLayouts(problem_));
  }

  absl::StatusOr<LayoutPlan> Plan(const FixedLayouts& fixed) {
    std::vector<Layout> layouts;
    size_t found = 0;
    for (const LayoutPlan::Operator& op : plan_.operators) {
      const auto it = fixed.of.find(op.name);
      const Layout layout = it == fixed.of.end() ? Layout::kChannelsFirst : it->second;
      found += it != fixed.of.end();
      if (layout != Layout::kChannelsFirst &&
          (!op.free || op.cost.ns.Cost(layout) >= LayoutProblem::kNever)) {
        return absl::InvalidArgumentError(absl::StrCat(NameOf(op.kind), " node '", op.name,
                                                       "' has no form ",
                                                       std::string(LayoutName(layout))));
      }
      if (op.free) layouts.push_back(layout);
    }
    if (found == fixed.of.size()) return Plan(layouts);
    std::set<std::string> names;
    for (const LayoutPlan::Operator& op : plan_.operators) names.insert(op.name);
    for (const auto& [name, layout] : fixed.of) {
      if (!names.contains(name))
        return absl::InvalidArgumentError(absl::StrCat("no node is called '", name, "'"));
    }
    return absl::InternalError("two nodes have one name");
  }

 private:
  std::vector<Layout> Everywhere(Layout layout) const {
    std::vector<Layout> layouts;
    for (const LayoutProblem::Operator& op : problem_.operators) {
      const bool has = op.Cost(layout) < LayoutProblem::kNever;
      layouts.push_back(has ? layout : Layout::kChannelsLast);
    }
    return layouts;
  }

  // Ends the planning.
  LayoutPlan Plan(const std::vector<Layout>& chosen) {
    LayoutPlan plan = std::move(plan_);
    size_t next = 0;
    for (LayoutPlan::Operator& op : plan.operators) {
      if (op.free) op.layout = chosen[next++];
    }
    for (size_t i = 0; i < problem_.values.size(); ++i) {
      const Value& of = graph_.values[values_[i]];
      if (LooksTheSame(of.type)) continue;
      for (const Layout to : MovesOf(problem_.values[i], chosen))
        plan.moves.push_back({of.name, of.type, to, problem_.values[i].move_ns});
    }
    plan.block = block_;
    plan.ns = CostOf(problem_, chosen);
    plan.first_ns = CostOf(problem_, Everywhere(Layout::kChannelsFirst));
    plan.last_ns = CostOf(problem_, Everywhere(Layout::kChannelsLast));
    return plan;
  }

  void AddNode(const Node& node) {
    LayoutPlan::Operator& op = plan_.operators.emplace_back();
    op.name = node.name;
    op.kind = node.kind;
    op.type = graph_.values[node.outputs[0]].type;
    op.free = HasChannelsLastForm(graph_, node);
    int index = LayoutProblem::kModel;
    if (op.free) {
      op.cost = costs_.OperatorCost(graph_, node);
      if (!HasChannelsBlockedForm(graph_, node, block_))
        op.cost.ns.blocked_ns = LayoutProblem::kNever;
      index = static_cast<int>(problem_.operators.size());
      problem_.operators.push_back(op.cost.ns);
    }
    if (!flattened_[node.outputs[0]]) AddReaders(node, index);
    AddValue(node.outputs[0], MakesItsLayout(graph_, node) ? index : LayoutProblem::kModel);
  }

  void AddReaders(const Node& node, int index) {
    const auto rank = [&](ValueId v) { return graph_.values[v].type.shape.size(); };
    const bool aligned = Def(node.kind).layout.operands == LayoutRule::Operands::kAligned;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const bool moves = aligned ? rank(node.inputs[i]) == rank(node.outputs[0]) : i == 0;
      AddReader(node.inputs[i], moves ? index : LayoutProblem::kModel);
    }
  }

  void AddValue(ValueId v, int maker) {
    value_of_[v] = static_cast<int>(problem_.values.size());
    values_.push_back(v);
    const TensorType& type = graph_.values[v].type;
    problem_.values.push_back({maker, {}, costs_.MoveNs(type), Blocks(type, block_)});
  }

  // Constants do not count, because their transposes are folded.
  void AddReader(ValueId v, int reader) {
    if (value_of_[v] >= 0) problem_.values[value_of_[v]].readers.push_back(reader);
  }

  const Graph& graph_;
  const LayoutCosts& costs_;
  const int64_t block_;
  const std::vector<bool> flattened_;
  LayoutProblem problem_;
  std::vector<int> value_of_;    // index in the problem by ValueId; -1 for constants
  std::vector<ValueId> values_;  // by index in the problem
  LayoutPlan plan_;
};

}  // namespace

bool MakesItsLayout(const Graph& graph, const Node& node) {
  const auto rank = [&](ValueId v) { return graph.values[v].type.shape.size(); };
  return node.inputs.empty() || rank(node.outputs[0]) >= rank(node.inputs[0]);
}

bool HasChannelsLastForm(const Graph& graph, const Node& node) {
  const LayoutRule& rule = Def(node.kind).layout;
  if (!rule.last || node.inputs.empty()) return false;
  const std::vector<TensorType> inputs = InputTypes(graph, node);
  const TensorType& output = graph.values[node.outputs[0]].type;
  if (std::max(inputs[0].shape.size(), output.shape.size()) < 3) return false;
  return rule.last({inputs, output, AttrsOf(node)});
}

bool HasChannelsBlockedForm(const Graph& graph, const Node& node, int64_t block) {
  const LayoutRule& rule = Def(node.kind).layout;
  if (!rule.blocked || !HasChannelsLastForm(graph, node)) return false;
  const std::vector<TensorType> inputs = InputTypes(graph, node);
  return rule.blocked({inputs, graph.values[node.outputs[0]].type, AttrsOf(node)}, block);
}

LayoutPlan PlanLayouts(const Graph& graph, const LayoutCosts& costs, int64_t block,
                       std::optional<Layout> all) {
  return Planner(graph, costs, block).Plan(all);
}

absl::StatusOr<LayoutPlan> PlanLayouts(const Graph& graph, const LayoutCosts& costs,
                                       const FixedLayouts& fixed) {
  return Planner(graph, costs, fixed.block).Plan(fixed);
}

FixedLayouts Fixed(const LayoutPlan& plan) {
  FixedLayouts fixed{plan.block, {}};
  for (const LayoutPlan::Operator& op : plan.operators) {
    if (op.layout != Layout::kChannelsFirst) fixed.of[op.name] = op.layout;
  }
  return fixed;
}

}  // namespace heddle::graph
