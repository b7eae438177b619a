#include "compiler/driver/check_substitution.h"

#include <algorithm>
#include <map>
#include <optional>

#include "absl/strings/str_cat.h"
#include "base/splitmix.h"
#include "base/status_macros.h"
#include "compiler/graph/core/graph_builder.h"
#include "compiler/graph/core/operator.h"
#include "compiler/graph/core/tensor_data.h"
#include "compiler/graph/passes/evaluate.h"
#include "compiler/measure/compare.h"

namespace heddle {
namespace {

using graph::Graph;
using graph::Node;
using graph::OpFamily;
using graph::OpKind;
using graph::Shape;
using graph::TensorData;
using graph::TensorType;
using graph::ValueId;

// More than any window that is common, so that most positions lie inside of the image.
constexpr int64_t kImage = 9;
constexpr int64_t kRows = 4;
// Of the largest magnitude. Sums in another order differ by less.
constexpr double kRounding = 1e-4;

// The matched nodes, and for enlarged kernels the convolutions that say how large.
std::vector<const Node*> NodesOf(const Graph& graph, const plan::Substitution& substitution) {
  std::vector<const Node*> nodes;
  std::set<ValueId> images;
  const auto matched = [&](const Node& node) {
    return std::find(substitution.nodes.begin(), substitution.nodes.end(), node.name) !=
           substitution.nodes.end();
  };
  const auto convolves = [](const Node& node) {
    return graph::Def(node.kind).family == OpFamily::kConvolution;
  };
  for (const Node& node : graph.nodes) {
    if (matched(node) && convolves(node)) images.insert(node.inputs[0]);
  }
  const bool enlarges = substitution.rule.find("enlarge") != std::string::npos;
  for (const Node& node : graph.nodes) {
    if (matched(node) || (enlarges && convolves(node) && images.contains(node.inputs[0])))
      nodes.push_back(&node);
  }
  return nodes;
}

// How much of a graph its part keeps.
struct Kept {
  bool extents = false;    // else images and matrices have fewer rows
  bool constants = false;  // else they are inputs, too, which makes the check harder to pass
};

// The nodes as a graph of their own: what they read are its inputs, what they make its outputs. nullopt: their
// types do not allow smaller inputs.
std::optional<Graph> PartOf(const Graph& graph, const std::vector<const Node*>& nodes,
                            const Kept& kept) {
  graph::GraphBuilder part;
  std::map<ValueId, ValueId> made;
  std::set<ValueId> inside;
  for (const Node* node : nodes) inside.insert(node->outputs[0]);
  std::map<ValueId, TensorType> inputs;
  for (const Node* node : nodes) {
    for (const ValueId v : node->inputs) {
      if (!inside.contains(v)) inputs.emplace(v, graph.values[static_cast<size_t>(v)].type);
    }
  }
  for (const Node* node : nodes) {
    const auto first = node->inputs.empty() ? inputs.end() : inputs.find(node->inputs[0]);
    if (kept.extents || first == inputs.end()) continue;
    Shape& shape = first->second.shape;
    const OpFamily family = graph::Def(node->kind).family;
    if (family == OpFamily::kConvolution || family == OpFamily::kPool) {
      for (size_t d = 2; d < shape.size(); ++d) shape[d] = std::min(shape[d], kImage);
    } else if (node->kind == OpKind::kMatmul && shape.size() >= 2) {
      shape[shape.size() - 2] = std::min(shape[shape.size() - 2], kRows);
    }
  }
  for (const auto& [v, type] : inputs) {
    const std::string& name = graph.values[static_cast<size_t>(v)].name;
    const auto data = graph.constants.find(v);
    const bool constant = kept.constants && data != graph.constants.end();
    if (constant && data->second.type != type) return std::nullopt;
    made[v] = constant ? part.Constant(name, data->second) : part.Input(name, type);
  }
  std::vector<std::pair<std::string, ValueId>> outputs;
  for (const Node* node : nodes) {
    std::vector<ValueId> operands;
    for (const ValueId v : node->inputs) operands.push_back(made.at(v));
    const auto value = part.Add(node->kind, std::move(operands), node->attrs, node->name);
    if (!value.ok()) return std::nullopt;
    made[node->outputs[0]] = *value;
    outputs.emplace_back(graph.values[static_cast<size_t>(node->outputs[0])].name, *value);
  }
  auto built = part.Build(outputs);
  if (!built.ok()) return std::nullopt;
  return *std::move(built);
}

TensorData RandomData(const TensorType& type, SplitMix* random) {
  std::vector<double> values(static_cast<size_t>(graph::NumElements(type)));
  for (double& value : values) value = 2 * random->Unit() - 1;
  return graph::FromDoubles(values, type.shape, type.dtype);
}

}  // namespace

absl::Status CheckSubstitution(const Graph& graph,
                               const std::vector<substitution::DirectedRule>& rules,
                               const plan::Substitution& substitution,
                               std::set<std::string>* checked) {
  const std::vector<const Node*> nodes = NodesOf(graph, substitution);
  std::string kind = absl::StrCat(substitution.rule, " ", substitution.way);
  for (const Node* node : nodes) {
    absl::StrAppend(&kind, " ", graph::NameOf(node->kind), graph::ExactText(node->attrs));
    for (const TensorType& type : graph::InputTypes(graph, *node))
      absl::StrAppend(&kind, " ", graph::ToText(type));
  }
  if (checked->contains(kind)) return absl::OkStatus();

  // A rule may need a constant, or an extent: the first part to which it applies is checked.
  std::optional<Graph> before;
  absl::StatusOr<Graph> after = absl::InternalError("matched nodes make no graph");
  for (const Kept& kept : {Kept{}, Kept{.constants = true}, Kept{.extents = true},
                           Kept{.extents = true, .constants = true}}) {
    before = PartOf(graph, nodes, kept);
    if (before.has_value()) after = substitution::Replay(*before, rules, substitution);
    if (before.has_value() && after.ok()) break;
  }
  HEDDLE_RETURN_IF_ERROR(after.status());
  SplitMix random(1);
  std::vector<TensorData> inputs;
  for (const ValueId v : before->inputs)
    inputs.push_back(RandomData(before->values[static_cast<size_t>(v)].type, &random));
  HEDDLE_ASSIGN_OR_RETURN(const auto expected, graph::EvaluateGraph(*before, inputs));
  HEDDLE_ASSIGN_OR_RETURN(const auto found, graph::EvaluateGraph(*after, inputs));
  for (size_t i = 0; i < expected.size(); ++i) {
    const double error = RelativeError(graph::ToDoubles(found[i]), graph::ToDoubles(expected[i]));
    if (error <= kRounding) continue;
    return absl::InternalError(absl::StrCat("substitution '", substitution.rule, "' at node '",
                                            substitution.nodes[0], "' changes a result by ", error,
                                            " of its magnitude"));
  }
  checked->insert(kind);
  return absl::OkStatus();
}

}  // namespace heddle
