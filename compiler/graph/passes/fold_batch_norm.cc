#include "compiler/graph/passes/fold_batch_norm.h"

#include <cmath>
#include <functional>

#include "base/status_macros.h"
#include "compiler/graph/core/graph_builder.h"
#include "compiler/graph/core/tensor_data.h"
#include "compiler/graph/ops/op_util.h"

namespace heddle::graph {
namespace {

// y = x * factor + offset, per channel.
struct Affine {
  std::vector<double> factor, offset;
};

std::optional<Affine> Statistics(const GraphBuilder& out, const Node& node) {
  std::vector<std::vector<double>> constants;
  for (size_t i = 1; i < 5; ++i) {
    const TensorData* data = out.ConstantData(node.inputs[i]);
    if (data == nullptr) return std::nullopt;
    constants.push_back(ToDoubles(*data));
  }
  const double epsilon = AttrsOf(node).Float("epsilon");
  Affine a;
  for (size_t c = 0; c < constants[0].size(); ++c) {
    a.factor.push_back(constants[0][c] / std::sqrt(constants[3][c] + epsilon));
    a.offset.push_back(constants[1][c] - constants[2][c] * a.factor[c]);
  }
  return a;
}

// The dimension of the node's weights that runs over the channels of its result; -1 if there is
// none.
int ChannelsOfWeights(const GraphBuilder& out, const Node& node) {
  const OpDef& def = Def(node.kind);
  if (!def.laws.channels_of_weights) return -1;
  const std::vector<TensorType> in = {out.Type(node.inputs[0]), out.Type(node.inputs[1])};
  return def.laws.channels_of_weights({in, out.Type(node.outputs[0]), AttrsOf(node)});
}

TensorData ScaleAlong(const TensorData& data, int dimension, const std::vector<double>& factor) {
  std::vector<double> values = ToDoubles(data);
  const int64_t stride = RowMajorStrides(data.type.shape)[dimension],
                extent = data.type.shape[dimension];
  for (size_t i = 0; i < values.size(); ++i)
    values[i] *= factor[(static_cast<int64_t>(i) / stride) % extent];
  return FromDoubles(values, data.type.shape, data.type.dtype);
}

class Folder {
 public:
  explicit Folder(const Graph& graph)
      : graph_(graph), uses_(UseCounts(graph)), producers_(Producers(graph)) {}

  Replacement operator()(GraphBuilder& out, const Node& node, const Node& original) {
    if (node.kind != OpKind::kBatchNorm) return std::nullopt;
    std::optional<Affine> affine = Statistics(out, node);
    if (!affine) return std::nullopt;
    const int64_t axis = AttrsOf(node).Int("axis");
    if (axis == 1) {
      HEDDLE_ASSIGN_OR_RETURN(std::optional<ValueId> folded,
                              IntoWeights(out, node, original, *affine));
      if (folded) return folded;
    }
    HEDDLE_ASSIGN_OR_RETURN(ValueId scaled, Add(out, OpKind::kMul, node.inputs[0], affine->factor,
                                                axis, node.name + "/scale"));
    return Add(out, OpKind::kAdd, scaled, affine->offset, axis, node.name);
  }

 private:
  // Adds the operator `kind` on x and a constant that holds `values` along dimension `axis` of x.
  absl::StatusOr<ValueId> Add(GraphBuilder& out, OpKind kind, ValueId x,
                              const std::vector<double>& values, int64_t axis,
                              const std::string& name) {
    const TensorType type = out.Type(x);
    Shape shape(type.shape.size(), 1);
    shape[axis] = static_cast<int64_t>(values.size());
    const ValueId constant =
        out.Constant(name + "/constant", FromDoubles(values, shape, type.dtype));
    return out.Add(kind, {x, constant}, {}, name);
  }

  // The values of a constant that has one value for each channel (dimension 1); nullopt for other
  // constants.
  static std::optional<std::vector<double>> PerChannel(const TensorData* data,
                                                       const Shape& result) {
    if (data == nullptr || data->type.shape.size() > result.size()) return std::nullopt;
    const size_t skip = result.size() - data->type.shape.size();
    for (size_t d = 0; d < data->type.shape.size(); ++d) {
      if (data->type.shape[d] != (d + skip == 1 ? result[1] : 1)) return std::nullopt;
    }
    std::vector<double> values = ToDoubles(*data);
    if (static_cast<int64_t>(values.size()) != result[1]) return std::nullopt;
    return values;
  }

  Replacement IntoWeights(GraphBuilder& out, const Node& node, const Node& original,
                          const Affine& affine) {
    const Shape result = out.Type(node.inputs[0]).shape;
    ValueId x = node.inputs[0], original_x = original.inputs[0];
    std::vector<double> bias(affine.factor.size(), 0);
    if (uses_[original_x] != 1) return std::nullopt;
    const Node* producer = out.ProducerOf(x);
    if (producer != nullptr && producer->kind == OpKind::kAdd && producers_[original_x] >= 0) {
      // If the addition broadcasts its operand, the weights have fewer channels than the
      // statistics.
      if (out.Type(producer->inputs[0]) != out.Type(x)) return std::nullopt;
      auto values = PerChannel(out.ConstantData(producer->inputs[1]), result);
      if (!values) return std::nullopt;
      bias = *values;
      original_x = graph_.nodes[producers_[original_x]].inputs[0];
      if (uses_[original_x] != 1) return std::nullopt;
      producer = out.ProducerOf(producer->inputs[0]);
    }
    if (producer == nullptr) return std::nullopt;
    const int dimension = ChannelsOfWeights(out, *producer);
    const TensorData* weights = dimension < 0 ? nullptr : out.ConstantData(producer->inputs[1]);
    if (weights == nullptr ||
        weights->type.shape[dimension] != static_cast<int64_t>(affine.factor.size()))
      return std::nullopt;
    const Node anchor = *producer;
    const ValueId scaled =
        out.Constant(out.Name(anchor.inputs[1]), ScaleAlong(*weights, dimension, affine.factor));
    HEDDLE_ASSIGN_OR_RETURN(
        ValueId y, out.Add(anchor.kind, {anchor.inputs[0], scaled}, anchor.attrs, anchor.name));
    for (size_t c = 0; c < bias.size(); ++c)
      bias[c] = bias[c] * affine.factor[c] + affine.offset[c];
    return Add(out, OpKind::kAdd, y, bias, 1, node.name);
  }

  const Graph& graph_;
  std::vector<int> uses_, producers_;
};

}  // namespace

absl::StatusOr<Graph> FoldBatchNorm(const Graph& graph) {
  Folder folder(graph);
  return RewriteGraph(graph, std::ref(folder));
}

}  // namespace heddle::graph
