#include "compiler/graph/passes/sink_concat.h"

#include <functional>
#include <memory>
#include <optional>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "compiler/graph/core/graph_builder.h"
#include "compiler/graph/ops/op_util.h"

namespace heddle::graph {
namespace {

// Elements [begin, begin + count) of dimension 1 of weights [O, I, k..].
TensorData InputChannels(const TensorData& weights, int64_t begin, int64_t count) {
  TensorData part{weights.type, nullptr};
  const int64_t outputs = weights.type.shape[0], inputs = weights.type.shape[1];
  part.type.shape[1] = count;
  const size_t channel = weights.bytes->size() / static_cast<size_t>(outputs * inputs);
  std::string bytes;
  for (int64_t o = 0; o < outputs; ++o) {
    bytes.append(*weights.bytes, static_cast<size_t>(o * inputs + begin) * channel,
                 static_cast<size_t>(count) * channel);
  }
  part.bytes = SharedBytes::Of(std::move(bytes));
  return part;
}

class Sinker {
 public:
  explicit Sinker(const Graph& graph) : graph_(graph), uses_(UseCounts(graph)) {}

  Replacement operator()(GraphBuilder& out, const Node& node, const Node& original) {
    if (original.inputs.empty() || uses_[original.inputs[0]] != 1) return std::nullopt;
    const ValueId x = node.inputs[0], y = original.outputs[0];
    const Node* concat = out.ProducerOf(x);
    if (concat == nullptr || concat->kind != OpKind::kConcat) return std::nullopt;
    const auto axis =
        NormalizeAxis(AttrsOf(*concat).Int("axis"), static_cast<int>(out.Type(x).shape.size()));
    if (!axis.ok() || *axis != 1) return std::nullopt;
    if (NumElements(graph_.values[y].type) >= NumElements(out.Type(x))) return std::nullopt;
    const std::vector<ValueId> parts = concat->inputs;
    switch (Def(node.kind).family) {
      case OpFamily::kPool:
        return Pools(out, node, parts);
      case OpFamily::kConvolution:
        return Convolutions(out, node, parts);
      default:
        return std::nullopt;
    }
  }

 private:
  static Replacement Pools(GraphBuilder& out, const Node& node, const std::vector<ValueId>& parts) {
    std::vector<ValueId> pooled;
    for (ValueId part : parts) {
      HEDDLE_ASSIGN_OR_RETURN(ValueId y, out.Add(node.kind, {part}, node.attrs, node.name));
      pooled.push_back(y);
    }
    return out.Add(OpKind::kConcat, pooled, {{"axis", int64_t{1}}}, node.name);
  }

  static Replacement Convolutions(GraphBuilder& out, const Node& node,
                                  const std::vector<ValueId>& parts) {
    const TensorData* data = out.ConstantData(node.inputs[1]);
    if (parts.size() != 2 || data == nullptr || AttrsOf(node).Int("groups") != 1)
      return std::nullopt;
    const TensorData weights = *data;
    ValueId sum = -1;
    int64_t begin = 0;
    for (ValueId part : parts) {
      const int64_t count = out.Type(part).shape[1];
      const ValueId w = out.Constant(absl::StrCat(out.Name(node.inputs[1]), "/", begin),
                                     InputChannels(weights, begin, count));
      HEDDLE_ASSIGN_OR_RETURN(ValueId y, out.Add(node.kind, {part, w}, node.attrs, node.name));
      begin += count;
      if (sum < 0) {
        sum = y;
        continue;
      }
      HEDDLE_ASSIGN_OR_RETURN(sum, out.Add(OpKind::kAdd, {y, sum}, {}, node.name));
    }
    return sum;
  }

  const Graph& graph_;
  std::vector<int> uses_;
};

}  // namespace

absl::StatusOr<Graph> SinkConcat(const Graph& graph) {
  Sinker sinker(graph);
  return RewriteGraph(graph, std::ref(sinker));
}

}  // namespace heddle::graph
