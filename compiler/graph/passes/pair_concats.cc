#include "compiler/graph/passes/pair_concats.h"

#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "compiler/graph/core/graph_builder.h"
#include "compiler/graph/core/operator.h"
#include "compiler/graph/ops/op_util.h"

namespace heddle::graph {
namespace {

// From the first dimension on; -1: the node is no concatenation.
int64_t AxisOf(const GraphBuilder& out, const Node& node) {
  if (node.kind != OpKind::kConcat) return -1;
  const auto axis = NormalizeAxis(AttrsOf(node).Int("axis"),
                                  static_cast<int>(out.Type(node.inputs[0]).shape.size()));
  return axis.ok() ? *axis : -1;
}

}  // namespace

absl::StatusOr<Graph> PairConcats(const Graph& graph) {
  return RewriteGraph(graph, [](GraphBuilder& out, const Node& node, const Node&) -> Replacement {
    if (node.kind != OpKind::kConcat || node.inputs.size() < 3) return std::nullopt;
    ValueId joined = node.inputs[0];
    for (size_t i = 1; i < node.inputs.size(); ++i) {
      const bool last = i + 1 == node.inputs.size();
      const std::string name = last ? node.name : absl::StrCat(node.name, "/", i + 1);
      HEDDLE_ASSIGN_OR_RETURN(joined,
                              out.Add(OpKind::kConcat, {joined, node.inputs[i]}, node.attrs, name));
    }
    return joined;
  });
}

absl::StatusOr<Graph> JoinConcats(const Graph& graph) {
  const std::vector<int> uses = UseCounts(graph);
  return RewriteGraph(
      graph, [&](GraphBuilder& out, const Node& node, const Node& original) -> Replacement {
        const int64_t axis = AxisOf(out, node);
        if (axis < 0) return std::nullopt;
        std::vector<ValueId> parts;
        for (size_t i = 0; i < node.inputs.size(); ++i) {
          const Node* inner = out.ProducerOf(node.inputs[i]);
          const bool sole_reader = uses[static_cast<size_t>(original.inputs[i])] == 1;
          if (inner != nullptr && sole_reader && AxisOf(out, *inner) == axis) {
            parts.insert(parts.end(), inner->inputs.begin(), inner->inputs.end());
          } else {
            parts.push_back(node.inputs[i]);
          }
        }
        if (parts.size() == node.inputs.size()) return std::nullopt;
        return out.Add(OpKind::kConcat, std::move(parts), node.attrs, node.name);
      });
}

}  // namespace heddle::graph
