#include "compiler/graph/layout/layout.h"

#include <array>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "compiler/graph/core/graph_builder.h"
#include "compiler/graph/core/operator.h"
#include "compiler/graph/layout/layout_moves.h"
#include "compiler/graph/layout/layout_plan.h"

namespace heddle::graph {
namespace {

class LayoutPass {
 public:
  LayoutPass(const Graph& graph, const LayoutPlan& plan, const machine::GraphCore& core)
      : graph_(graph),
        plan_(plan),
        core_(core),
        made_(graph.values.size(), Layout::kChannelsFirst) {
    for (std::vector<ValueId>& in : in_) in.assign(graph.values.size(), -1);
  }

  absl::StatusOr<Graph> Run() {
    for (ValueId v : graph_.inputs)
      In(Layout::kChannelsFirst)[v] = out_.Input(graph_.values[v].name, graph_.values[v].type);
    for (const auto& [v, data] : graph_.constants)
      In(Layout::kChannelsFirst)[v] = out_.Constant(graph_.values[v].name, data);
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      const Node& node = graph_.nodes[i];
      layout_ = plan_.operators[i].layout;
      HEDDLE_RETURN_IF_ERROR(layout_ == Layout::kChannelsFirst ? Unmoved(node) : Transform(node));
    }
    std::vector<std::pair<std::string, ValueId>> outputs;
    for (ValueId v : graph_.outputs) {
      HEDDLE_ASSIGN_OR_RETURN(ValueId value, First(v));
      outputs.emplace_back(graph_.values[v].name, value);
    }
    HEDDLE_ASSIGN_OR_RETURN(Graph built, out_.Build(outputs));
    built.lengths = graph_.lengths;
    built.tables = graph_.tables;
    return RemoveDead(built);
  }

 private:
  const Shape& ShapeOf(ValueId v) const { return graph_.values[v].type.shape; }
  int64_t Rank(ValueId v) const { return static_cast<int64_t>(ShapeOf(v).size()); }

  bool Blocked() const { return layout_ == Layout::kChannelsBlocked; }
  // Whether the current operator takes this value in blocks.
  bool InBlocks(ValueId v) const { return Blocked() && Blocks(graph_.values[v].type, plan_.block); }

  std::vector<ValueId>& In(Layout layout) { return in_[static_cast<size_t>(layout)]; }

  absl::StatusOr<ValueId> As(Layout layout, ValueId v) {
    ValueId& x = In(layout)[v];
    if (x < 0) {
      const Value& value = graph_.values[v];
      HEDDLE_ASSIGN_OR_RETURN(x, MoveLayout(out_, In(made_[v])[v], value.type, made_[v], layout,
                                            plan_.block, value.name));
    }
    return x;
  }
  absl::StatusOr<ValueId> First(ValueId v) { return As(Layout::kChannelsFirst, v); }
  // The value in the form that the current operator's layout gives it.
  absl::StatusOr<ValueId> Here(ValueId v) {
    return As(InBlocks(v) ? Layout::kChannelsBlocked : Layout::kChannelsLast, v);
  }

  // An operand that is broadcast to `rank` dimensions (LayoutRule::kAligned), in the current
  // layout.
  absl::StatusOr<ValueId> Aligned(ValueId v, int64_t rank) {
    if (Rank(v) == rank && (InBlocks(v) || !Blocked())) return Here(v);
    if (Rank(v) == rank && ShapeOf(v)[1] == plan_.block) {  // a part of a concat
      HEDDLE_ASSIGN_OR_RETURN(const ValueId x, Here(v));
      Shape one_block = out_.Type(x).shape;
      one_block.insert(one_block.begin() + 1, 1);
      return out_.Add(OpKind::kReshape, {x}, {{"shape", one_block}}, out_.Name(x) + "/aligned");
    }
    HEDDLE_ASSIGN_OR_RETURN(ValueId x, First(v));
    if (NumElements(graph_.values[v].type) == 1) return x;
    TensorType full{graph_.values[v].type.dtype, Shape(rank - Rank(v), 1)};
    full.shape.insert(full.shape.end(), ShapeOf(v).begin(), ShapeOf(v).end());
    const std::string name = graph_.values[v].name + "/aligned";
    HEDDLE_ASSIGN_OR_RETURN(x, out_.Add(OpKind::kReshape, {x}, {{"shape", full.shape}}, name));
    if (Blocked() && full.shape[1] == 1) {
      full.shape.push_back(1);
      return out_.Add(OpKind::kReshape, {x}, {{"shape", full.shape}}, name);
    }
    return MoveLayout(out_, x, full, Layout::kChannelsFirst, layout_, plan_.block, name);
  }

  // Adds a node in its layout, which is not channels first.
  absl::Status Transform(const Node& node) {
    const OpDef& def = Def(node.kind);
    const bool aligned = def.layout.operands == LayoutRule::Operands::kAligned;
    Node placed = node;
    placed.attrs = MovedAttrs(def.attrs, node.attrs, Rank(node.inputs[0]), layout_, plan_.block);
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const ValueId v = node.inputs[i];
      HEDDLE_ASSIGN_OR_RETURN(placed.inputs[i], aligned  ? Aligned(v, Rank(node.outputs[0]))
                                                : i == 0 ? Here(v)
                                                         : First(v));
    }
    if (def.layout.form) {
      const int64_t lanes =
          core_.vector_bytes / ir::SizeOf(graph_.values[node.outputs[0]].type.dtype);
      const LayoutRule::Change change{layout_, plan_.block, lanes, InBlocks(node.inputs[0]),
                                      InBlocks(node.outputs[0])};
      HEDDLE_ASSIGN_OR_RETURN(placed, def.layout.form(out_, std::move(placed), change));
    }
    HEDDLE_ASSIGN_OR_RETURN(ValueId y,
                            out_.Add(placed.kind, placed.inputs, placed.attrs, node.name));
    const ValueId v = node.outputs[0];
    if (MakesItsLayout(graph_, node)) {
      made_[v] = InBlocks(v) ? Layout::kChannelsBlocked : Layout::kChannelsLast;
    } else if (out_.Type(y).shape != ShapeOf(v)) {  // its channels are still in blocks
      HEDDLE_ASSIGN_OR_RETURN(
          y, out_.Add(OpKind::kReshape, {y}, {{"shape", ShapeOf(v)}}, node.name + "/flat"));
    }
    In(made_[v])[v] = y;
    return absl::OkStatus();
  }

  absl::Status Unmoved(const Node& node) {
    std::vector<ValueId> inputs;
    for (ValueId v : node.inputs) {
      HEDDLE_ASSIGN_OR_RETURN(ValueId x, First(v));
      inputs.push_back(x);
    }
    HEDDLE_ASSIGN_OR_RETURN(In(Layout::kChannelsFirst)[node.outputs[0]],
                            out_.Add(node.kind, std::move(inputs), node.attrs, node.name));
    return absl::OkStatus();
  }

  const Graph& graph_;
  const LayoutPlan& plan_;
  const machine::GraphCore& core_;
  GraphBuilder out_;
  // By layout and old value: the new value that holds it, or -1 until an operator needs it.
  std::array<std::vector<ValueId>, kLayouts.size()> in_;
  std::vector<Layout> made_;                // by old value: the layout in which it is made
  Layout layout_ = Layout::kChannelsFirst;  // of the current operator
};

}  // namespace

absl::StatusOr<Graph> AssignLayouts(const Graph& graph, const LayoutOptions& options,
                                    const machine::TargetInfo& target) {
  const LayoutCosts estimates(target);
  const LayoutCosts& costs = options.costs == nullptr ? estimates : *options.costs;
  const int64_t block = options.fixed != nullptr ? options.fixed->block : options.block.value_or(0);
  if (block < 0 || block == 1) {
    return absl::InvalidArgumentError(absl::StrCat("a block of ", block, " channels is no block"));
  }
  LayoutPlan plan;
  if (options.fixed != nullptr) {
    HEDDLE_ASSIGN_OR_RETURN(plan, PlanLayouts(graph, costs, *options.fixed));
  } else {
    plan = PlanLayouts(graph, costs, block, options.all);
  }
  absl::StatusOr<Graph> assigned = LayoutPass(graph, plan, target.graph_core).Run();
  if (options.plan != nullptr) *options.plan = std::move(plan);
  return assigned;
}

}  // namespace heddle::graph
