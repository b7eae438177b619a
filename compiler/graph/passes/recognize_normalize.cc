#include "compiler/graph/passes/recognize_normalize.h"

#include <optional>

#include "compiler/graph/core/graph_builder.h"
#include "compiler/graph/core/tensor_data.h"
#include "compiler/graph/ops/op_util.h"

namespace heddle::graph {
namespace {

// Matches the pattern from its last node to its first. Each method matches, at the value `v`, the
// part that it is named after.
class Matcher {
 public:
  explicit Matcher(const GraphBuilder& graph) : graph_(graph) {}

  struct Found {
    ValueId x;
    Shape axes;
    double epsilon;
  };

  // centred / deviation, or centred * (1 / deviation).
  std::optional<Found> Normalized(const Node& node) const {
    if (node.kind == OpKind::kDiv) return Of(node.inputs[0], node.inputs[1]);
    if (node.kind != OpKind::kMul) return std::nullopt;
    for (int i : {0, 1}) {
      const Node* inverse = Made(node.inputs[1 - i], OpKind::kReciprocal);
      if (inverse == nullptr) continue;
      if (auto found = Of(node.inputs[i], inverse->inputs[0])) return found;
    }
    return std::nullopt;
  }

 private:
  const Node* Made(ValueId v, OpKind kind) const {
    const Node* node = graph_.ProducerOf(v);
    return node != nullptr && node->kind == kind ? node : nullptr;
  }

  // The operand and axes of a mean that keeps its dimensions.
  std::optional<std::pair<ValueId, Shape>> Mean(ValueId v) const {
    const Node* mean = Made(v, OpKind::kReduceMean);
    if (mean == nullptr || !AttrsOf(*mean).Flag("keepdims")) return std::nullopt;
    const ValueId x = mean->inputs[0];
    const auto axes =
        NormalizeAxes(AttrsOf(*mean).Ints("axes"), static_cast<int>(graph_.Type(x).shape.size()));
    if (!axes.ok() || axes->empty()) return std::nullopt;
    return std::pair(x, *axes);
  }

  // Matches x - mean(x) and returns x and the axes.
  std::optional<std::pair<ValueId, Shape>> Centred(ValueId v) const {
    const Node* difference = Made(v, OpKind::kSub);
    if (difference == nullptr) return std::nullopt;
    auto mean = Mean(difference->inputs[1]);
    if (!mean || mean->first != difference->inputs[0]) return std::nullopt;
    return mean;
  }

  std::optional<Found> Of(ValueId centred, ValueId deviation) const {
    const auto numerator = Centred(centred);
    const Node* root = numerator ? Made(deviation, OpKind::kSqrt) : nullptr;
    const Node* sum = root != nullptr ? Made(root->inputs[0], OpKind::kAdd) : nullptr;
    if (sum == nullptr) return std::nullopt;
    for (int i : {0, 1}) {
      const TensorData* epsilon = graph_.ConstantData(sum->inputs[1 - i]);
      const auto variance = Mean(sum->inputs[i]);
      if (epsilon == nullptr || NumElements(epsilon->type) != 1 || !variance) continue;
      if (graph_.Type(sum->inputs[i]) != graph_.Type(root->inputs[0])) continue;
      const Node* square = Made(variance->first, OpKind::kMul);
      if (square == nullptr || square->inputs[0] != square->inputs[1]) continue;
      // Some exporters write the difference twice.
      if (Centred(square->inputs[0]) != numerator || variance->second != numerator->second)
        continue;
      return Found{numerator->first, numerator->second, ToDoubles(*epsilon)[0]};
    }
    return std::nullopt;
  }

  const GraphBuilder& graph_;
};

}  // namespace

absl::StatusOr<Graph> RecognizeNormalize(const Graph& graph) {
  return RewriteGraph(graph, [](GraphBuilder& out, const Node& node, const Node&) -> Replacement {
    const auto found = Matcher(out).Normalized(node);
    if (!found || !ir::IsFloat(out.Type(found->x).dtype)) return std::nullopt;
    return out.Add(OpKind::kNormalize, {found->x},
                   {{"axes", found->axes}, {"epsilon", found->epsilon}}, node.name);
  });
}

}  // namespace heddle::graph
