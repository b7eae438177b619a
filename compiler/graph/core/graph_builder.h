// Making graphs: the importer and every pass construct theirs here, so that names stay unique and
// types are inferred.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/graph/core/graph.h"

namespace heddle::graph {

class GraphBuilder {
 public:
  ValueId Input(const std::string& name, TensorType type);
  ValueId Constant(const std::string& name, TensorData data);  // the name is made unique
  // Infers the type. `name` (of the node and of its result) is made unique. InvalidArgument: the
  // operator's reason.
  absl::StatusOr<ValueId> Add(std::string_view op, std::vector<ValueId> inputs, Attrs attrs,
                              const std::string& name);

  const TensorType& Type(ValueId v) const { return graph_.values[v].type; }
  const std::string& Name(ValueId v) const { return graph_.values[v].name; }
  const TensorData* ConstantData(ValueId v) const;  // null for anything else
  bool IsNodeOutput(ValueId v) const { return producers_.count(v) != 0; }
  // The node that makes v, null if none does; valid until the next Add.
  const Node* ProducerOf(ValueId v) const;

  // Ends the construction. A value that cannot be an output itself (an input, a constant, one that
  // is an output already) is copied by an identity node. Outputs get the names given.
  absl::StatusOr<Graph> Build(const std::vector<std::pair<std::string, ValueId>>& outputs);

 private:
  ValueId AddValue(std::string name, TensorType type);

  Graph graph_;
  // Names that are taken, with the number to try next behind each.
  using Names = std::map<std::string, int>;
  static std::string Unique(Names& names, const std::string& name);
  Names value_names_, node_names_;
  std::map<ValueId, size_t> producers_;  // value -> index of its node
};

// Copies `graph` node by node into a new one. `rewrite` sees each node with its inputs already
// translated and returns the value that takes the place of its result, or nullopt to keep the node
// as it is. Constants are copied; names of outputs are kept.
using Rewriter =
    std::function<absl::StatusOr<std::optional<ValueId>>(GraphBuilder& out, const Node& node)>;
absl::StatusOr<Graph> RewriteGraph(const Graph& graph, const Rewriter& rewrite);

// Without nodes and constants that no output needs, values renumbered. Inputs stay.
Graph RemoveDead(const Graph& graph);

// Node index per value (-1: not a node's), and how many node operands and graph outputs read each
// value.
std::vector<int> Producers(const Graph& graph);
std::vector<int> UseCounts(const Graph& graph);

}  // namespace heddle::graph
