#include "compiler/graph/layout.h"

#include <algorithm>
#include <numeric>

#include "compiler/graph/graph_builder.h"
#include "compiler/graph/layout_plan.h"
#include "compiler/graph/op_util.h"
#include "compiler/graph/window.h"
#include "compiler/ir/status_macros.h"

namespace heddle::graph {
namespace {

// Where dimension `axis` of a channels-first tensor lies when channels are last.
int64_t LastAxis(int64_t axis, int64_t rank) {
  return axis == 0 ? 0 : axis == 1 ? rank - 1 : axis - 1;
}

Shape ToLast(int64_t rank) {
  Shape perm(rank);
  for (int64_t d = 0; d < rank; ++d) perm[LastAxis(d, rank)] = d;
  return perm;
}

Shape ToFirst(int64_t rank) {
  Shape perm(rank);
  for (int64_t d = 0; d < rank; ++d) perm[d] = LastAxis(d, rank);
  return perm;
}

Shape Permuted(const Shape& values) {
  Shape out(values.size());
  for (size_t d = 0; d < values.size(); ++d)
    out[LastAxis(static_cast<int64_t>(d), static_cast<int64_t>(values.size()))] = values[d];
  return out;
}

bool OneOf(const std::string& op, std::initializer_list<std::string_view> names) {
  return std::find(names.begin(), names.end(), op) != names.end();
}

// How many groups of a convolution become one: so many that a group's outputs fill a vector of 64
// bytes, which is what one load of weights then takes. What is multiplied by zeros grows with it:
// of small groups that fill vectors of the image evenly, code permutes such a vector instead.
int64_t MergedGroups(int64_t groups, int64_t group_inputs, int64_t group_outputs) {
  constexpr int64_t kChannels = 16, kMost = 4, kSmall = 4;
  if (group_inputs == group_outputs && group_outputs <= kSmall && kChannels % group_outputs == 0 &&
      groups * group_outputs % kChannels == 0)
    return 1;
  int64_t merged = 1;
  for (int64_t m = 2; m <= kMost && merged * group_outputs < kChannels; ++m) {
    if (groups % m == 0) merged = m;
  }
  return merged;
}

// Weights [O, I/groups, k..] of a convolution in groups / merged groups: each output channel reads
// the inputs of `merged` groups, those of the others through zeros.
TensorData MergeGroups(const TensorData& weights, int64_t groups, int64_t merged) {
  TensorData out{weights.type, nullptr};
  const int64_t outputs = weights.type.shape[0], group_outputs = outputs / groups;
  out.type.shape[1] *= merged;
  const size_t row = weights.bytes->size() / static_cast<size_t>(outputs);  // of one output
  std::string bytes(weights.bytes->size() * static_cast<size_t>(merged), '\0');
  for (int64_t o = 0; o < outputs; ++o) {
    const size_t slot = static_cast<size_t>(o * merged + o / group_outputs % merged);
    bytes.replace(slot * row, row, *weights.bytes, static_cast<size_t>(o) * row, row);
  }
  out.bytes = std::make_shared<const std::string>(std::move(bytes));
  return out;
}

class LayoutPass {
 public:
  LayoutPass(const Graph& graph, const LayoutPlan& plan)
      : graph_(graph),
        plan_(plan),
        first_(graph.values.size(), -1),
        last_(graph.values.size(), -1) {}

  absl::StatusOr<Graph> Run() {
    for (ValueId v : graph_.inputs)
      first_[v] = out_.Input(graph_.values[v].name, graph_.values[v].type);
    for (const auto& [v, data] : graph_.constants)
      first_[v] = out_.Constant(graph_.values[v].name, data);
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      const bool last = plan_.operators[i].layout == Layout::kChannelsLast;
      HEDDLE_RETURN_IF_ERROR(last ? Place(graph_.nodes[i]) : Unmoved(graph_.nodes[i]));
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

  absl::StatusOr<ValueId> First(ValueId v) {
    if (first_[v] < 0) {
      HEDDLE_ASSIGN_OR_RETURN(first_[v],
                              out_.Add("transpose", {last_[v]}, {{"perm", ToFirst(Rank(v))}},
                                       graph_.values[v].name + "/channels_first"));
    }
    return first_[v];
  }

  absl::StatusOr<ValueId> Last(ValueId v) {
    if (last_[v] < 0) {
      HEDDLE_ASSIGN_OR_RETURN(last_[v],
                              out_.Add("transpose", {first_[v]}, {{"perm", ToLast(Rank(v))}},
                                       graph_.values[v].name + "/channels_last"));
    }
    return last_[v];
  }

  // An operand of an elementwise operator of rank `rank`, aligned with channels-last ones.
  absl::StatusOr<ValueId> LastAligned(ValueId v, int64_t rank) {
    if (Rank(v) == rank) return Last(v);
    HEDDLE_ASSIGN_OR_RETURN(ValueId x, First(v));
    if (NumElements(graph_.values[v].type) == 1) return x;
    Shape full(rank - Rank(v), 1);
    full.insert(full.end(), ShapeOf(v).begin(), ShapeOf(v).end());
    const std::string name = graph_.values[v].name + "/aligned";
    HEDDLE_ASSIGN_OR_RETURN(x, out_.Add("reshape", {x}, {{"shape", full}}, name));
    return out_.Add("transpose", {x}, {{"perm", ToLast(rank)}}, name);
  }

  // A node that works channels last (HasChannelsLastForm).
  absl::Status Place(const Node& node) {
    if (OneOf(node.op, {"conv1d", "conv2d", "conv3d"})) return Convolution(node);
    if (node.op.compare(0, 14, "conv_transpose") == 0) return Transposed(node);
    if (node.op.compare(0, 7, "reduce_") == 0 || node.op.compare(0, 4, "arg_") == 0) {
      return Reduction(node);
    }
    if (node.op == "batch_norm") return BatchNorm(node);
    if (FindOp(node.op)->elementwise) return Elementwise(node);
    return Moved(node, MovedAttrs(node));
  }

  absl::Status Emit(const Node& node, const std::string& op, std::vector<ValueId> inputs,
                    const Attrs& attrs) {
    HEDDLE_ASSIGN_OR_RETURN(ValueId y, out_.Add(op, std::move(inputs), attrs, node.name));
    last_[node.outputs[0]] = y;
    return absl::OkStatus();
  }

  absl::Status Unmoved(const Node& node) {
    std::vector<ValueId> inputs;
    for (ValueId v : node.inputs) {
      HEDDLE_ASSIGN_OR_RETURN(ValueId x, First(v));
      inputs.push_back(x);
    }
    HEDDLE_ASSIGN_OR_RETURN(first_[node.outputs[0]],
                            out_.Add(node.op, std::move(inputs), node.attrs, node.name));
    return absl::OkStatus();
  }

  absl::Status Convolution(const Node& node) {
    const Shape& weights = ShapeOf(node.inputs[1]);
    const int64_t n = static_cast<int64_t>(weights.size()) - 2;
    HEDDLE_ASSIGN_OR_RETURN(ValueId x, Last(node.inputs[0]));
    HEDDLE_ASSIGN_OR_RETURN(ValueId w, First(node.inputs[1]));
    const std::string name = out_.Name(w) + "/channels_last";
    Attrs attrs = node.attrs;
    const int64_t groups = IntAttr(attrs, "groups", 1);
    const bool depthwise = groups > 1 && weights[1] == 1 && weights[0] == groups;
    const int64_t merged = depthwise ? 1 : MergedGroups(groups, weights[1], weights[0] / groups);
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
    HEDDLE_ASSIGN_OR_RETURN(ValueId x, Last(node.inputs[0]));
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
    HEDDLE_ASSIGN_OR_RETURN(ValueId x, Last(node.inputs[0]));
    std::vector<ValueId> inputs{x};
    for (size_t i = 1; i < node.inputs.size(); ++i) {
      HEDDLE_ASSIGN_OR_RETURN(ValueId v, First(node.inputs[i]));
      inputs.push_back(v);
    }
    Attrs attrs = node.attrs;
    attrs["axis"] = LastAxis(IntAttr(attrs, "axis", 1), Rank(node.inputs[0]));
    return Emit(node, node.op, inputs, attrs);
  }

  absl::Status Elementwise(const Node& node) {
    std::vector<ValueId> inputs;
    for (ValueId v : node.inputs) {
      HEDDLE_ASSIGN_OR_RETURN(ValueId x, LastAligned(v, Rank(node.outputs[0])));
      inputs.push_back(x);
    }
    return Emit(node, node.op, inputs, node.attrs);
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
        if (HasAttr(attrs, name)) attrs[name] = Permuted(IntsAttr(attrs, name));
      }
    } else {  // concat, lrn, cum_sum, gather
      const int64_t axis = IntAttr(attrs, "axis", node.op == "lrn" ? 1 : 0);
      attrs["axis"] = LastAxis(*NormalizeAxis(axis, static_cast<int>(rank)), rank);
    }
    return attrs;
  }

  // Operands of the result's rank move; others (indices, a scalar to pad with) stay as they are.
  absl::Status Moved(const Node& node, const Attrs& attrs) {
    std::vector<ValueId> inputs;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const bool data = i == 0 || node.op == "concat";
      HEDDLE_ASSIGN_OR_RETURN(ValueId x, data ? Last(node.inputs[i]) : First(node.inputs[i]));
      inputs.push_back(x);
    }
    return Emit(node, node.op, inputs, attrs);
  }

  absl::Status Reduction(const Node& node) {
    const int64_t rank = Rank(node.inputs[0]);
    Attrs attrs = node.attrs;
    Shape axes = IntsAttr(attrs, "axes");
    HEDDLE_ASSIGN_OR_RETURN(ValueId x, Last(node.inputs[0]));
    for (int64_t& a : axes) a = LastAxis(a, rank);
    std::sort(axes.begin(), axes.end());
    attrs["axes"] = axes;
    if (MakesItsLayout(node)) return Emit(node, node.op, {x}, attrs);
    HEDDLE_ASSIGN_OR_RETURN(first_[node.outputs[0]], out_.Add(node.op, {x}, attrs, node.name));
    return absl::OkStatus();
  }

  const Graph& graph_;
  const LayoutPlan& plan_;
  GraphBuilder out_;
  // The value in the new graph that holds each old one, in either layout; -1 until somebody needs
  // it.
  std::vector<ValueId> first_, last_;
};

}  // namespace

absl::StatusOr<Graph> AssignLayouts(const Graph& graph, const LayoutOptions& options) {
  const LayoutCosts estimates;
  const LayoutCosts& costs = options.costs == nullptr ? estimates : *options.costs;
  LayoutPlan plan = PlanLayouts(graph, costs, options.all);
  absl::StatusOr<Graph> assigned = LayoutPass(graph, plan).Run();
  if (options.plan != nullptr) *options.plan = std::move(plan);
  return assigned;
}

}  // namespace heddle::graph
