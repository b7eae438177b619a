#include "compiler/graph/passes/simplify_graph.h"

#include <algorithm>
#include <functional>

#include "base/status_macros.h"
#include "compiler/graph/core/graph_builder.h"
#include "compiler/graph/ops/op_util.h"
#include "compiler/graph/ops/window.h"

namespace heddle::graph {
namespace {

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

  Replacement operator()(GraphBuilder& out, const Node& node, const Node& original) {
    const TensorType& result = graph_.values[original.outputs[0]].type;
    const OpDef& def = Def(node.kind);
    const bool copies = def.laws.copies && def.laws.copies(AttrsOf(node));
    if (copies && out.Type(node.inputs[0]) == result) return node.inputs[0];
    const bool sole_reader = !original.inputs.empty() && uses_[original.inputs[0]] == 1;
    if (node.kind == OpKind::kReshape) return Reshape(out, node, result, sole_reader);
    if (node.kind == OpKind::kTranspose) return Transpose(out, node, result);
    if (def.family == OpFamily::kConvolution) return PaddedConv(out, node);
    return std::nullopt;
  }

 private:
  Replacement Reshape(GraphBuilder& out, const Node& node, const TensorType& result,
                      bool sole_reader) {
    const Node* producer = out.ProducerOf(node.inputs[0]);
    if (producer == nullptr) return std::nullopt;
    if (producer->kind == OpKind::kReshape) {
      const ValueId source = producer->inputs[0];
      if (out.Type(source) == result) return source;
      return out.Add(OpKind::kReshape, {source}, node.attrs, node.name);
    }
    if (Def(producer->kind).family != OpFamily::kReduction || !sole_reader) return std::nullopt;
    const Node reduce = *producer;
    for (int64_t keepdims : {0, 1}) {
      Attrs attrs = reduce.attrs;
      attrs["keepdims"] = keepdims;
      const std::vector<TensorType> in{out.Type(reduce.inputs[0])};
      HEDDLE_ASSIGN_OR_RETURN(const TensorType type, InferType(reduce.kind, in, attrs));
      if (type == result) return out.Add(reduce.kind, reduce.inputs, attrs, node.name);
    }
    return std::nullopt;
  }

  Replacement Transpose(GraphBuilder& out, const Node& node, const TensorType& result) {
    ValueId source = node.inputs[0];
    Shape perm = AttrsOf(node).Ints("perm");
    const Node* producer = out.ProducerOf(source);
    const bool composed = producer != nullptr && producer->kind == OpKind::kTranspose;
    if (composed) {
      const Shape inner = AttrsOf(*producer).Ints("perm");
      for (int64_t& d : perm) d = inner[d];
      source = producer->inputs[0];
      if (std::is_sorted(perm.begin(), perm.end())) return source;
    }
    if (MovesNothing(out.Type(source).shape, perm)) {
      if (out.Type(source) == result) return source;
      const Node reshape{
          OpKind::kReshape, node.name, {source}, node.outputs, {{"shape", result.shape}}};
      HEDDLE_ASSIGN_OR_RETURN(std::optional<ValueId> shorter, Reshape(out, reshape, result, false));
      if (shorter) return shorter;
      return out.Add(OpKind::kReshape, {source}, reshape.attrs, node.name);
    }
    if (!composed) return std::nullopt;
    return out.Add(OpKind::kTranspose, {source}, {{"perm", perm}}, node.name);
  }

  // Simplifies conv(pad(x)) with zero padding of spatial dimensions only.
  Replacement PaddedConv(GraphBuilder& out, const Node& node) {
    const Node* pad = out.ProducerOf(node.inputs[0]);
    if (pad == nullptr || pad->kind != OpKind::kPad || pad->inputs.size() != 1) return std::nullopt;
    const OpAttrs padding = AttrsOf(*pad);
    if (padding.Text("mode") != "constant" || padding.Float("value") != 0) return std::nullopt;
    const Shape &begin = padding.Ints("begin"), &end = padding.Ints("end");
    const size_t n = begin.size() - 2;
    const OpAttrs window = AttrsOf(node);
    const size_t first = LayoutOf(window) == Layout::kChannelsLast ? 1 : 2;
    Shape pads = window.Ints("pads");
    pads.resize(2 * n, 0);
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
    // The sum of both pads may exceed what a convolution allows.
    const std::vector<TensorType> types{out.Type(pad->inputs[0]), out.Type(node.inputs[1])};
    if (!InferType(node.kind, types, attrs).ok()) return std::nullopt;
    return out.Add(node.kind, {pad->inputs[0], node.inputs[1]}, attrs, node.name);
  }

  const Graph& graph_;
  std::vector<int> uses_;
};

}  // namespace

absl::StatusOr<Graph> SimplifyGraph(const Graph& graph) {
  Simplifier simplifier(graph);
  return RewriteGraph(graph, std::ref(simplifier));
}

}  // namespace heddle::graph
