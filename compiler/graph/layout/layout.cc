#include "compiler/graph/layout/layout.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "compiler/graph/core/graph_builder.h"
#include "compiler/graph/layout/layout_moves.h"
#include "compiler/graph/layout/layout_plan.h"
#include "compiler/graph/ops/op_util.h"
#include "compiler/graph/ops/window.h"

namespace heddle::graph {
namespace {

bool OneOf(const std::string& op, std::initializer_list<std::string_view> names) {
  return std::find(names.begin(), names.end(), op) != names.end();
}

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
      HEDDLE_RETURN_IF_ERROR(layout_ == Layout::kChannelsFirst ? Unmoved(node) : Place(node));
    }
    std::vector<std::pair<std::string, ValueId>> outputs;
    for (ValueId v : graph_.outputs) {
      HEDDLE_ASSIGN_OR_RETURN(ValueId value, First(v));
      outputs.emplace_back(graph_.values[v].name, value);
    }
    HEDDLE_ASSIGN_OR_RETURN(Graph built, out_.Build(outputs));
    return RemoveDead(built);
  }

 private:
  const Shape& ShapeOf(ValueId v) const { return graph_.values[v].type.shape; }
  int64_t Rank(ValueId v) const { return static_cast<int64_t>(ShapeOf(v).size()); }

  bool Blocked() const { return layout_ == Layout::kChannelsBlocked; }
  // Whether the operator at hand has this value in blocks.
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
  // In the form it has in the layout of the operator at hand.
  absl::StatusOr<ValueId> Here(ValueId v) {
    return As(InBlocks(v) ? Layout::kChannelsBlocked : Layout::kChannelsLast, v);
  }

  // An operand of an elementwise operator or a concat of rank `rank`, aligned with the others here.
  absl::StatusOr<ValueId> Aligned(ValueId v, int64_t rank) {
    if (Rank(v) == rank && (InBlocks(v) || !Blocked())) return Here(v);
    if (Rank(v) == rank && ShapeOf(v)[1] == plan_.block) {  // a part of a concat
      HEDDLE_ASSIGN_OR_RETURN(const ValueId x, Here(v));
      Shape one_block = out_.Type(x).shape;
      one_block.insert(one_block.begin() + 1, 1);
      return out_.Add("reshape", {x}, {{"shape", one_block}}, out_.Name(x) + "/aligned");
    }
    HEDDLE_ASSIGN_OR_RETURN(ValueId x, First(v));
    if (NumElements(graph_.values[v].type) == 1) return x;
    TensorType full{graph_.values[v].type.dtype, Shape(rank - Rank(v), 1)};
    full.shape.insert(full.shape.end(), ShapeOf(v).begin(), ShapeOf(v).end());
    const std::string name = graph_.values[v].name + "/aligned";
    HEDDLE_ASSIGN_OR_RETURN(x, out_.Add("reshape", {x}, {{"shape", full.shape}}, name));
    if (Blocked() && full.shape[1] == 1) {
      full.shape.push_back(1);
      return out_.Add("reshape", {x}, {{"shape", full.shape}}, name);
    }
    return MoveLayout(out_, x, full, Layout::kChannelsFirst, layout_, plan_.block, name);
  }

  // A node that does not work channels first.
  absl::Status Place(const Node& node) {
    if (OneOf(node.op, {"conv1d", "conv2d", "conv3d"})) {
      return Blocked() ? BlockedConvolution(node) : Convolution(node);
    }
    if (node.op.compare(0, 14, "conv_transpose") == 0) return Transposed(node);
    if (node.op.compare(0, 7, "reduce_") == 0 || node.op.compare(0, 4, "arg_") == 0) {
      return Reduction(node);
    }
    if (node.op == "batch_norm") return BatchNorm(node);
    if (FindOp(node.op)->elementwise) return Elementwise(node, node.attrs);
    if (node.op == "concat") return Elementwise(node, MovedAttrs(node));
    return Moved(node, Blocked() ? BlockedAttrs(node) : MovedAttrs(node));
  }

  absl::Status Emit(const Node& node, const std::string& op, std::vector<ValueId> inputs,
                    const Attrs& attrs) {
    HEDDLE_ASSIGN_OR_RETURN(ValueId y, out_.Add(op, std::move(inputs), attrs, node.name));
    const ValueId v = node.outputs[0];
    made_[v] = InBlocks(v) ? Layout::kChannelsBlocked : Layout::kChannelsLast;
    In(made_[v])[v] = y;
    return absl::OkStatus();
  }

  // A result in the model's own layout.
  void EmitFirst(const Node& node, ValueId y) { In(Layout::kChannelsFirst)[node.outputs[0]] = y; }

  absl::Status Unmoved(const Node& node) {
    std::vector<ValueId> inputs;
    for (ValueId v : node.inputs) {
      HEDDLE_ASSIGN_OR_RETURN(ValueId x, First(v));
      inputs.push_back(x);
    }
    HEDDLE_ASSIGN_OR_RETURN(const ValueId y,
                            out_.Add(node.op, std::move(inputs), node.attrs, node.name));
    EmitFirst(node, y);
    return absl::OkStatus();
  }

  absl::Status BlockedConvolution(const Node& node) {
    HEDDLE_ASSIGN_OR_RETURN(const ValueId x, Here(node.inputs[0]));
    HEDDLE_ASSIGN_OR_RETURN(ValueId w, First(node.inputs[1]));
    Attrs attrs = node.attrs;
    attrs.erase("groups");
    if (IntAttr(node.attrs, "groups", 1) == 1) {
      HEDDLE_ASSIGN_OR_RETURN(w, BlockWeights(out_, w, InBlocks(node.inputs[0]),
                                              InBlocks(node.outputs[0]), plan_.block));
      return Emit(node, "blocked_" + node.op, {x, w}, attrs);
    }
    HEDDLE_ASSIGN_OR_RETURN(w, BlockDepthwiseWeights(out_, w, plan_.block));
    return Emit(node, "blocked_depthwise_" + node.op, {x, w}, attrs);
  }

  absl::Status Convolution(const Node& node) {
    const Shape& weights = ShapeOf(node.inputs[1]);
    const int64_t n = static_cast<int64_t>(weights.size()) - 2;
    HEDDLE_ASSIGN_OR_RETURN(ValueId x, Here(node.inputs[0]));
    HEDDLE_ASSIGN_OR_RETURN(ValueId w, First(node.inputs[1]));
    const std::string name = out_.Name(w) + "/channels_last";
    Attrs attrs = node.attrs;
    const int64_t groups = IntAttr(attrs, "groups", 1);
    const bool depthwise = groups > 1 && weights[1] == 1 && weights[0] == groups;
    const int64_t lanes =
        core_.vector_bytes / ir::SizeOf(graph_.values[node.outputs[0]].type.dtype);
    const int64_t merged =
        depthwise ? 1 : MergedGroups(groups, weights[1], weights[0] / groups, lanes);
    const TensorData* data = out_.ConstantData(w);
    if (merged > 1 && data != nullptr) {
      w = out_.Constant(out_.Name(w) + "/merged", MergeGroups(*data, groups, merged));
      attrs["groups"] = groups / merged;
      attrs["zero_share"] = merged;
    }
    Shape perm(n + 2);
    std::iota(perm.begin(), perm.end(), 2);
    perm[n] = 1;
    perm[n + 1] = 0;
    HEDDLE_ASSIGN_OR_RETURN(w, out_.Add("transpose", {w}, {{"perm", perm}}, name));
    if (depthwise) {
      Shape taps(weights.begin() + 2, weights.end());
      taps.push_back(groups);
      HEDDLE_ASSIGN_OR_RETURN(w, out_.Add("reshape", {w}, {{"shape", taps}}, name));
      attrs.erase("groups");
      return Emit(node, "depthwise_" + node.op, {x, w}, attrs);
    }
    attrs["layout"] = std::string(kChannelsLast);
    return Emit(node, node.op, {x, w}, attrs);
  }

  // The kernel is made whole strides by zeros at its end, which the padding takes away again.
  absl::Status Transposed(const Node& node) {
    const Shape& weights = ShapeOf(node.inputs[1]);
    const int64_t n = static_cast<int64_t>(weights.size()) - 2;
    HEDDLE_ASSIGN_OR_RETURN(ValueId x, Here(node.inputs[0]));
    HEDDLE_ASSIGN_OR_RETURN(ValueId w, First(node.inputs[1]));
    Attrs attrs = node.attrs;
    const std::string name = out_.Name(w) + "/channels_last";
    Shape strides = IntsAttr(attrs, "strides"), pads = IntsAttr(attrs, "pads"), end(n + 2, 0);
    strides.resize(n, 1);
    pads.resize(2 * n, 0);
    for (int64_t i = 0; i < n; ++i) {
      end[2 + i] = (strides[i] - weights[2 + i] % strides[i]) % strides[i];
      pads[n + i] += end[2 + i];
    }
    if (end != Shape(n + 2, 0)) {
      HEDDLE_ASSIGN_OR_RETURN(
          w, out_.Add("pad", {w}, {{"begin", Shape(n + 2, 0)}, {"end", end}}, name));
    }
    Shape perm(n + 2);
    std::iota(perm.begin(), perm.end(), 2);
    perm[n] = 0;
    perm[n + 1] = 1;
    HEDDLE_ASSIGN_OR_RETURN(w, out_.Add("transpose", {w}, {{"perm", perm}}, name));
    attrs["pads"] = pads;
    attrs["layout"] = std::string(kChannelsLast);
    return Emit(node, node.op, {x, w}, attrs);
  }

  absl::Status BatchNorm(const Node& node) {
    HEDDLE_ASSIGN_OR_RETURN(ValueId x, Here(node.inputs[0]));
    std::vector<ValueId> inputs{x};
    for (size_t i = 1; i < node.inputs.size(); ++i) {
      HEDDLE_ASSIGN_OR_RETURN(ValueId v, First(node.inputs[i]));
      inputs.push_back(v);
    }
    Attrs attrs = node.attrs;
    attrs["axis"] = LastAxis(IntAttr(attrs, "axis", 1), Rank(node.inputs[0]));
    return Emit(node, node.op, inputs, attrs);
  }

  // Also a concat, whose operands have its rank.
  absl::Status Elementwise(const Node& node, const Attrs& attrs) {
    std::vector<ValueId> inputs;
    for (ValueId v : node.inputs) {
      HEDDLE_ASSIGN_OR_RETURN(ValueId x, Aligned(v, Rank(node.outputs[0])));
      inputs.push_back(x);
    }
    return Emit(node, node.op, inputs, attrs);
  }

  // The attributes, blocked, of operators whose spatial axes keep their places.
  Attrs BlockedAttrs(const Node& node) const {
    Attrs attrs = node.attrs;
    const auto extend = [&](const char* name, int64_t inner, bool in_channels) {
      Shape values = IntsAttr(attrs, name);
      if (in_channels) values[1] /= plan_.block;
      values.push_back(inner);
      attrs[name] = values;
    };
    if (node.op == "pad") {
      extend("begin", 0, false);
      extend("end", 0, false);
    } else if (node.op == "slice") {
      extend("starts", 0, true);
      extend("steps", 1, false);
      extend("sizes", plan_.block, true);
    } else {  // pools
      attrs["layout"] = std::string(kChannelsBlocked);
    }
    return attrs;
  }

  // The attributes of operators that work in any layout once their axes are renamed.
  Attrs MovedAttrs(const Node& node) const {
    Attrs attrs = node.attrs;
    const int64_t rank = Rank(node.outputs[0]);
    if (OneOf(node.op, {"max_pool", "avg_pool", "lp_pool"})) {
      attrs["layout"] = std::string(kChannelsLast);
    } else if (OneOf(node.op, {"softmax", "log_softmax", "normalize"})) {
      Shape axes = IntsAttr(attrs, "axes");
      for (int64_t& a : axes) a = LastAxis(a, rank);
      std::sort(axes.begin(), axes.end());
      attrs["axes"] = axes;
    } else if (OneOf(node.op, {"pad", "slice", "tile", "expand"})) {
      for (const char* name : {"begin", "end", "starts", "steps", "sizes", "repeats", "shape"}) {
        if (HasAttr(attrs, name)) attrs[name] = ToLastOrder(IntsAttr(attrs, name));
      }
    } else {  // concat, lrn, cum_sum, gather
      const int64_t axis = IntAttr(attrs, "axis", node.op == "lrn" ? 1 : 0);
      const int64_t first = *NormalizeAxis(axis, static_cast<int>(rank));
      attrs["axis"] = Blocked() ? first : LastAxis(first, rank);
    }
    return attrs;
  }

  // Operands of the result's rank move; others (indices, a scalar to pad with) stay as they are.
  absl::Status Moved(const Node& node, const Attrs& attrs) {
    std::vector<ValueId> inputs;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      HEDDLE_ASSIGN_OR_RETURN(ValueId x, i == 0 ? Here(node.inputs[i]) : First(node.inputs[i]));
      inputs.push_back(x);
    }
    return Emit(node, node.op, inputs, attrs);
  }

  absl::Status Reduction(const Node& node) {
    const int64_t rank = Rank(node.inputs[0]);
    Attrs attrs = node.attrs;
    Shape axes = IntsAttr(attrs, "axes");
    HEDDLE_ASSIGN_OR_RETURN(ValueId x, Here(node.inputs[0]));
    if (!Blocked()) {  // else spatial axes only, which keep their places
      for (int64_t& a : axes) a = LastAxis(a, rank);
      std::sort(axes.begin(), axes.end());
    }
    attrs["axes"] = axes;
    if (MakesItsLayout(node)) return Emit(node, node.op, {x}, attrs);
    HEDDLE_ASSIGN_OR_RETURN(ValueId y, out_.Add(node.op, {x}, attrs, node.name));
    if (Blocked()) {
      const Shape flat = ShapeOf(node.outputs[0]);
      HEDDLE_ASSIGN_OR_RETURN(y, out_.Add("reshape", {y}, {{"shape", flat}}, node.name + "/flat"));
    }
    EmitFirst(node, y);
    return absl::OkStatus();
  }

  const Graph& graph_;
  const LayoutPlan& plan_;
  const machine::GraphCore& core_;
  GraphBuilder out_;
  // The value in the new graph that holds each old one, by layout; -1 until somebody needs it.
  std::array<std::vector<ValueId>, kLayouts.size()> in_;
  std::vector<Layout> made_;  // of each old value: the layout that is there from the beginning
  Layout layout_ = Layout::kChannelsFirst;  // of the operator at hand
};

}  // namespace

absl::StatusOr<Graph> AssignLayouts(const Graph& graph, const LayoutOptions& options,
                                    const machine::TargetInfo& target) {
  const LayoutCosts estimates(target);
  const LayoutCosts& costs = options.costs == nullptr ? estimates : *options.costs;
  const int64_t block = options.block.value_or(0);
  if (block < 0 || block == 1) {
    return absl::InvalidArgumentError(absl::StrCat("a block of ", block, " channels is no block"));
  }
  LayoutPlan plan = PlanLayouts(graph, costs, block, options.all);
  absl::StatusOr<Graph> assigned = LayoutPass(graph, plan, target.graph_core).Run();
  if (options.plan != nullptr) *options.plan = std::move(plan);
  return assigned;
}

}  // namespace heddle::graph
