#include "compiler/graph/core/operator.h"

#include "base/status_macros.h"

namespace heddle::graph {

absl::StatusOr<TensorType> InferType(OpKind kind, Types inputs, const Attrs& attrs) {
  const OpDef& def = Def(kind);
  HEDDLE_RETURN_IF_ERROR(CheckAttrs(def.attrs, attrs));
  return def.infer(inputs, OpAttrs(def.attrs, attrs));
}

absl::StatusOr<tensor::Tensor> Express(OpKind kind, tensor::Builder& b, Tensors inputs,
                                       const Attrs& attrs) {
  const OpDef& def = Def(kind);
  HEDDLE_RETURN_IF_ERROR(CheckAttrs(def.attrs, attrs));
  return def.express(b, inputs, OpAttrs(def.attrs, attrs));
}

OpAttrs AttrsOf(const Node& node) { return {Def(node.kind).attrs, node.attrs}; }

std::vector<TensorType> InputTypes(const Graph& graph, const Node& node) {
  std::vector<TensorType> types;
  for (ValueId v : node.inputs) types.push_back(graph.values[v].type);
  return types;
}

double Flops(const Graph& graph, const Node& node) {
  const OpDef& def = Def(node.kind);
  if (!def.flops) return 0;
  return def.flops({InputTypes(graph, node), graph.values[node.outputs[0]].type, AttrsOf(node)});
}

}  // namespace heddle::graph
