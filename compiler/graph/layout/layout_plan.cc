#include "compiler/graph/layout/layout_plan.h"

#include <algorithm>

#include "compiler/graph/core/graph_builder.h"
#include "compiler/graph/ops/op_util.h"
#include "compiler/graph/ops/window.h"

namespace heddle::graph {
namespace {

bool OneOf(const std::string& op, std::initializer_list<std::string_view> names) {
  return std::find(names.begin(), names.end(), op) != names.end();
}

bool StartsWith(const std::string& op, std::string_view begin) {
  return op.compare(0, begin.size(), begin) == 0;
}

bool Reduces(const Node& node) {
  return StartsWith(node.op, "reduce_") || StartsWith(node.op, "arg_");
}

// Operands in the layout the node works in; all others it reads as the model has them.
std::vector<bool> LaidOut(const Graph& graph, const Node& node) {
  const auto rank = [&](ValueId v) { return graph.values[v].type.shape.size(); };
  const bool all = FindOp(node.op)->elementwise || node.op == "concat";
  std::vector<bool> laid_out;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    laid_out.push_back(all ? rank(node.inputs[i]) == rank(node.outputs[0]) : i == 0);
  }
  return laid_out;
}

// Without kept dimensions the rest must come in the same order either way.
bool ReductionHasLast(const Node& node, int64_t rank) {
  const Shape axes = IntsAttr(node.attrs, "axes");
  const auto reduced = [&](int64_t d) {
    return std::find(axes.begin(), axes.end(), d) != axes.end();
  };
  bool spatial_left = false;
  for (int64_t d = 2; d < rank; ++d) spatial_left |= !reduced(d);
  return MakesItsLayout(node) || reduced(1) || !spatial_left;
}

// Values that are only flattened for products with constant matrices, by ValueId of the flat one:
// FoldFlatten permutes the matrices instead.
std::vector<bool> FlattenedForConstants(const Graph& graph) {
  const std::vector<int> producers = Producers(graph), uses = UseCounts(graph);
  std::vector<bool> flattened(graph.values.size(), false);
  for (const Node& node : graph.nodes) {
    if (node.op != "matmul" || !graph.constants.contains(node.inputs[1]) ||
        graph.values[node.inputs[1]].type.shape.size() != 2)
      continue;
    const ValueId flat = node.inputs[0];
    const int maker = producers[flat];
    if (maker < 0 || graph.nodes[maker].op != "reshape" || uses[flat] != 1) continue;
    const Shape& to = graph.values[flat].type.shape;
    const Shape& from = graph.values[graph.nodes[maker].inputs[0]].type.shape;
    flattened[flat] = to.size() == 2 && from.size() > 2 && to[0] == from[0];
  }
  return flattened;
}

// The nodes that have a choice, and the values between them.
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
    const auto everywhere = [&](Layout layout) {
      std::vector<Layout> layouts;
      for (const LayoutProblem::Operator& op : problem_.operators) {
        const bool has = op.Cost(layout) < LayoutProblem::kNever;
        layouts.push_back(has ? layout : Layout::kChannelsLast);
      }
      return layouts;
    };
    const std::vector<Layout> chosen = all ? everywhere(*all) : ChooseLayouts(problem_);
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
    plan.first_ns = CostOf(problem_, everywhere(Layout::kChannelsFirst));
    plan.last_ns = CostOf(problem_, everywhere(Layout::kChannelsLast));
    return plan;
  }

 private:
  void AddNode(const Node& node) {
    LayoutPlan::Operator& op = plan_.operators.emplace_back();
    op.name = node.name;
    op.op = node.op;
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
    AddValue(node.outputs[0], MakesItsLayout(node) ? index : LayoutProblem::kModel);
  }

  void AddReaders(const Node& node, int index) {
    const std::vector<bool> laid_out = LaidOut(graph_, node);
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      AddReader(node.inputs[i], laid_out[i] ? index : LayoutProblem::kModel);
    }
  }

  void AddValue(ValueId v, int maker) {
    value_of_[v] = static_cast<int>(problem_.values.size());
    values_.push_back(v);
    const TensorType& type = graph_.values[v].type;
    problem_.values.push_back({maker, {}, costs_.MoveNs(type), Blocks(type, block_)});
  }

  // Transposes of constants are folded.
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

bool MakesItsLayout(const Node& node) {
  return !Reduces(node) || IntAttr(node.attrs, "keepdims", 1) != 0;
}

bool HasChannelsLastForm(const Graph& graph, const Node& node) {
  const auto rank = [&](ValueId v) {
    return static_cast<int64_t>(graph.values[v].type.shape.size());
  };
  if (node.inputs.empty()) return false;
  const int64_t in = rank(node.inputs[0]), out = rank(node.outputs[0]);
  if (Reduces(node)) return in >= 3 && ReductionHasLast(node, in);
  if (out < 3) return false;
  const bool first = StringAttr(node.attrs, "layout", kChannelsFirst) == kChannelsFirst;
  if (OneOf(node.op, {"conv1d", "conv2d", "conv3d"})) return first;
  if (StartsWith(node.op, "conv_transpose")) {
    const Shape dilations = IntsAttr(node.attrs, "dilations");
    return first && IntAttr(node.attrs, "groups", 1) == 1 &&
           std::all_of(dilations.begin(), dilations.end(), [](int64_t d) { return d == 1; });
  }
  if (FindOp(node.op)->elementwise) return true;
  if (OneOf(node.op, {"max_pool", "avg_pool", "lp_pool"})) return first;
  if (OneOf(node.op, {"pad", "slice", "tile", "expand"})) return in == out;
  if (node.op == "gather") return rank(node.inputs[1]) == 1;
  return OneOf(node.op,
               {"batch_norm", "concat", "lrn", "cum_sum", "softmax", "log_softmax", "normalize"});
}

bool HasChannelsBlockedForm(const Graph& graph, const Node& node, int64_t block) {
  if (!HasChannelsLastForm(graph, node)) return false;
  const TensorType &in = graph.values[node.inputs[0]].type,
                   &out = graph.values[node.outputs[0]].type;
  const bool in_blocks = Blocks(in, block), out_blocks = Blocks(out, block);
  if (OneOf(node.op, {"conv1d", "conv2d", "conv3d"})) {
    const int64_t groups = IntAttr(node.attrs, "groups", 1);
    if (groups == 1) return in_blocks || out_blocks;
    return in_blocks && groups == in.shape[1] && groups == out.shape[1];
  }
  if (FindOp(node.op)->elementwise) return out_blocks && node.op != "batch_norm";
  if (node.op == "concat") {
    return out_blocks && std::all_of(node.inputs.begin(), node.inputs.end(), [&](ValueId v) {
             return graph.values[v].type.shape[1] % block == 0;
           });
  }
  if (!in_blocks) return false;
  const size_t rank = in.shape.size();
  if (StartsWith(node.op, "reduce_")) {
    const Shape axes = IntsAttr(node.attrs, "axes");
    const bool spatial =
        std::all_of(axes.begin(), axes.end(), [](int64_t axis) { return axis >= 2; });
    return spatial && (MakesItsLayout(node) || axes.size() == rank - 2);
  }
  if (!out_blocks) return false;
  if (OneOf(node.op, {"max_pool", "avg_pool", "lp_pool"})) return true;
  if (node.op == "pad") {
    return IntsAttr(node.attrs, "begin")[1] == 0 && IntsAttr(node.attrs, "end")[1] == 0;
  }
  return node.op == "slice" && IntsAttr(node.attrs, "steps")[1] == 1 &&
         IntsAttr(node.attrs, "starts")[1] % block == 0;
}

bool Blocks(const TensorType& type, int64_t block) {
  return block > 0 && type.shape.size() >= 3 && type.shape[1] % block == 0 && type.shape[1] > block;
}

LayoutPlan PlanLayouts(const Graph& graph, const LayoutCosts& costs, int64_t block,
                       std::optional<Layout> all) {
  return Planner(graph, costs, block).Plan(all);
}

}  // namespace heddle::graph
