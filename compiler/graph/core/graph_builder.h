// Builds graphs. The importer and all passes use it, so names stay unique and types are inferred.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "compiler/graph/core/graph.h"

namespace heddle::graph {

class GraphBuilder {
 public:
  ValueId Input(const std::string& name, TensorType type);
  ValueId Constant(const std::string& name, TensorData data);  // the name is made unique
  // Adds a node and infers the type of its result. `name`, for the node and its result, is made
  // unique. InvalidArgument: says what is wrong with the operands or attributes.
  absl::StatusOr<ValueId> Add(OpKind kind, std::vector<ValueId> inputs, Attrs attrs,
                              const std::string& name);

  const TensorType& Type(ValueId v) const { return graph_.values[v].type; }
  const std::string& Name(ValueId v) const { return graph_.values[v].name; }
  const TensorData* ConstantData(ValueId v) const;  // null if v is no constant
  bool IsNodeOutput(ValueId v) const { return producers_.count(v) != 0; }
  // The node that makes v, or null; valid until the next Add.
  const Node* ProducerOf(ValueId v) const;

  // Ends the construction. A value that cannot be an output itself (an input, a constant, a value
  // that is already an output) is copied by an identity node; one without elements becomes a
  // constant of its own. The outputs get the given names.
  absl::StatusOr<Graph> Build(const std::vector<std::pair<std::string, ValueId>>& outputs);

 private:
  ValueId AddValue(std::string name, TensorType type);

  Graph graph_;
  // Names in use, each with the next number to append.
  using Names = std::map<std::string, int>;
  static std::string Unique(Names& names, const std::string& name);
  Names value_names_, node_names_;
  std::map<ValueId, size_t> producers_;  // value -> index of its node
};

// Copies `graph` node by node into a new one. `rewrite` gets each node twice: with its inputs in
// the new graph, and as it is in `graph`. It returns the value that replaces the node's result, or
// nullopt to keep the node. RewriteGraph copies the constants, keeps the names of outputs and what
// Graph says of them, and finally removes dead nodes.
using Replacement = absl::StatusOr<std::optional<ValueId>>;
using Rewriter =
    absl::FunctionRef<Replacement(GraphBuilder& out, const Node& node, const Node& original)>;
absl::StatusOr<Graph> RewriteGraph(const Graph& graph, Rewriter rewrite);

// The graph without the nodes and constants that no output needs, with its values renumbered. All
// inputs stay, because they are the model's interface.
Graph RemoveDead(const Graph& graph);

// For each value: Producers gives the index of the node that makes it, or -1; UseCounts gives how
// many operands and graph outputs read it.
std::vector<int> Producers(const Graph& graph);
std::vector<int> UseCounts(const Graph& graph);

}  // namespace heddle::graph
