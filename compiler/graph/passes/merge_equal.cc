#include "compiler/graph/passes/merge_equal.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <tuple>
#include <vector>

#include "base/status_macros.h"
#include "compiler/graph/core/graph_builder.h"
#include "compiler/graph/core/operator.h"

namespace heddle::graph {
namespace {

// Whether the attributes can be part of a key. A NaN cannot, because it is not equal to itself.
bool IsOrdered(const Attrs& attrs) {
  for (const auto& [name, value] : attrs) {
    if (const auto* number = std::get_if<double>(&value); number && std::isnan(*number))
      return false;
    if (const auto* numbers = std::get_if<std::vector<double>>(&value)) {
      for (double v : *numbers) {
        if (std::isnan(v)) return false;
      }
    }
  }
  return true;
}

// Whether two nodes do the same with the same operands. If none do, none will after others are merged.
bool AnyAlike(const Graph& graph) {
  std::vector<const Node*> nodes;
  for (const Node& node : graph.nodes) {
    if (!Def(node.kind).OnlyMoves()) nodes.push_back(&node);
  }
  const auto operands = [](const Node* node) { return std::tie(node->kind, node->inputs); };
  std::sort(nodes.begin(), nodes.end(),
            [&](const Node* a, const Node* b) { return operands(a) < operands(b); });
  return std::adjacent_find(nodes.begin(), nodes.end(), [&](const Node* a, const Node* b) {
           return operands(a) == operands(b);
         }) != nodes.end();
}

}  // namespace

absl::StatusOr<Graph> MergeEqual(const Graph& graph) {
  if (!AnyAlike(graph)) return graph;
  using Key = std::tuple<OpKind, std::vector<ValueId>, Attrs>;
  std::map<Key, ValueId> seen;
  return RewriteGraph(graph, [&](GraphBuilder& out, const Node& node, const Node&) -> Replacement {
    if (Def(node.kind).OnlyMoves() || !IsOrdered(node.attrs)) return std::nullopt;
    const Key key{node.kind, node.inputs, node.attrs};
    if (const auto found = seen.find(key); found != seen.end()) return found->second;
    HEDDLE_ASSIGN_OR_RETURN(const ValueId y,
                            out.Add(node.kind, node.inputs, node.attrs, node.name));
    seen.emplace(key, y);
    return y;
  });
}

}  // namespace heddle::graph
