#include "compiler/graph/passes/simplify_graph.h"

#include <algorithm>

#include "base/status_macros.h"
#include "compiler/graph/core/graph_builder.h"
#include "compiler/graph/ops/op_util.h"
#include "compiler/graph/ops/window.h"

namespace heddle::graph {
namespace {

using Replacement = absl::StatusOr<std::optional<ValueId>>;

bool AllAre(const Shape& values, int64_t value) {
  return std::all_of(values.begin(), values.end(), [&](int64_t v) { return v == value; });
}

bool StartsWith(const std::string& s, std::string_view prefix) {
  return s.compare(0, prefix.size(), prefix) == 0;
}

// Operators whose result is their operand. Only asked where the types agree.
bool IsCopy(const Node& node) {
  if (node.op == "identity" || node.op == "cast" || node.op == "reshape" || node.op == "expand")
    return true;
  if (node.op == "tile") return AllAre(IntsAttr(node.attrs, "repeats"), 1);
  if (node.op == "pad")
    return AllAre(IntsAttr(node.attrs, "begin"), 0) && AllAre(IntsAttr(node.attrs, "end"), 0);
  if (node.op == "slice") return AllAre(IntsAttr(node.attrs, "steps"), 1);
  if (node.op == "concat") return node.inputs.size() == 1;
  if (node.op != "transpose") return false;
  const Shape perm = IntsAttr(node.attrs, "perm");
  return std::is_sorted(perm.begin(), perm.end());
}

// Whether a permutation keeps the order of all dimensions that are larger than one.
bool MovesNothing(const Shape& shape, const Shape& perm) {
  int64_t previous = -1;
  for (int64_t d : perm) {
    if (shape[d] == 1) continue;
    if (d < previous) return false;
    previous = d;
  }
  return true;
}

class Simplifier {
 public:
  explicit Simplifier(const Graph& graph) : graph_(graph), uses_(UseCounts(graph)) {}

  Replacement operator()(GraphBuilder& out, const Node& node) {
    const Node& original = graph_.nodes[next_++];
    const TensorType& result = graph_.values[original.outputs[0]].type;
    if (!node.inputs.empty() && out.Type(node.inputs[0]) == result && IsCopy(node))
      return node.inputs[0];
    const bool sole_reader = !original.inputs.empty() && uses_[original.inputs[0]] == 1;
    if (node.op == "reshape") return Reshape(out, node, result, sole_reader);
    if (node.op == "transpose") return Transpose(out, node, result);
    if (StartsWith(node.op, "conv") && !StartsWith(node.op, "conv_transpose"))
      return PaddedConv(out, node);
    return std::nullopt;
  }

 private:
  Replacement Reshape(GraphBuilder& out, const Node& node, const TensorType& result,
                      bool sole_reader) {
    const Node* producer = out.ProducerOf(node.inputs[0]);
    if (producer == nullptr) return std::nullopt;
    if (producer->op == "reshape") {
      const ValueId source = producer->inputs[0];
      if (out.Type(source) == result) return source;
      return out.Add("reshape", {source}, node.attrs, node.name);
    }
    const OpDef* op = FindOp(producer->op);
    const bool reduction = StartsWith(producer->op, "reduce_") || StartsWith(producer->op, "arg_");
    if (!reduction || !sole_reader || op == nullptr) return std::nullopt;
    const Node reduce = *producer;
    for (int64_t keepdims : {0, 1}) {
      Attrs attrs = reduce.attrs;
      attrs["keepdims"] = keepdims;
      const std::vector<TensorType> in{out.Type(reduce.inputs[0])};
      HEDDLE_ASSIGN_OR_RETURN(std::vector<TensorType> types, op->infer(in, attrs));
      if (types[0] == result) return out.Add(reduce.op, reduce.inputs, attrs, node.name);
    }
    return std::nullopt;
  }

  Replacement Transpose(GraphBuilder& out, const Node& node, const TensorType& result) {
    ValueId source = node.inputs[0];
    Shape perm = IntsAttr(node.attrs, "perm");
    const Node* producer = out.ProducerOf(source);
    const bool composed = producer != nullptr && producer->op == "transpose";
    if (composed) {
      const Shape inner = IntsAttr(producer->attrs, "perm");
      for (int64_t& d : perm) d = inner[d];
      source = producer->inputs[0];
      if (std::is_sorted(perm.begin(), perm.end())) return source;
    }
    if (MovesNothing(out.Type(source).shape, perm)) {
      if (out.Type(source) == result) return source;
      const Node reshape{"reshape", node.name, {source}, node.outputs, {{"shape", result.shape}}};
      HEDDLE_ASSIGN_OR_RETURN(std::optional<ValueId> shorter, Reshape(out, reshape, result, false));
      if (shorter) return shorter;
      return out.Add("reshape", {source}, reshape.attrs, node.name);
    }
    if (!composed) return std::nullopt;
    return out.Add("transpose", {source}, {{"perm", perm}}, node.name);
  }

  // conv(pad(x)) with zeros around spatial dimensions only.
  Replacement PaddedConv(GraphBuilder& out, const Node& node) {
    const Node* pad = out.ProducerOf(node.inputs[0]);
    if (pad == nullptr || pad->op != "pad" || pad->inputs.size() != 1) return std::nullopt;
    if (StringAttr(pad->attrs, "mode", "constant") != "constant" ||
        FloatAttr(pad->attrs, "value") != 0 || IntAttr(pad->attrs, "value") != 0)
      return std::nullopt;
    const Shape begin = IntsAttr(pad->attrs, "begin"), end = IntsAttr(pad->attrs, "end");
    const size_t n = begin.size() - 2;
    const size_t first = StringAttr(node.attrs, "layout", kChannelsFirst) == kChannelsLast ? 1 : 2;
    Shape pads = HasAttr(node.attrs, "pads") ? IntsAttr(node.attrs, "pads") : Shape(2 * n, 0);
    int64_t spatial = 0, all = 0;
    for (size_t d = 0; d < begin.size(); ++d) all += begin[d] + end[d];
    for (size_t i = 0; i < n; ++i) {
      pads[i] += begin[first + i];
      pads[n + i] += end[first + i];
      spatial += begin[first + i] + end[first + i];
    }
    if (spatial != all) return std::nullopt;
    Attrs attrs = node.attrs;
    attrs["pads"] = pads;
    // Together they may be wider than a convolution's padding can be.
    const std::vector<TensorType> types{out.Type(pad->inputs[0]), out.Type(node.inputs[1])};
    if (!FindOp(node.op)->infer(types, attrs).ok()) return std::nullopt;
    return out.Add(node.op, {pad->inputs[0], node.inputs[1]}, attrs, node.name);
  }

  const Graph& graph_;
  std::vector<int> uses_;
  size_t next_ = 0;
};

}  // namespace

absl::StatusOr<Graph> SimplifyGraph(const Graph& graph) {
  auto simplifier = std::make_shared<Simplifier>(graph);
  return RewriteGraph(graph, [simplifier](GraphBuilder& out, const Node& node) {
    return (*simplifier)(out, node);
  });
}

}  // namespace heddle::graph
