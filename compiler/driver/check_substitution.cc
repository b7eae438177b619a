#include "compiler/driver/check_substitution.h"

#include <algorithm>
#include <functional>
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
#include "compiler/runtime/numerics.h"
#include "compiler/substitution/substitute.h"

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
// Of the largest magnitude, as of any kernel. Sums in another order differ by less.
constexpr double kRounding = runtime::kDirectTolerance.relative;
// Results of 16-bit types are rounded after every operator, and a rule changes how many there are.
constexpr double kRoundings = 4;
// What a check may evaluate, in nodes of expressions (graph::EvaluationCost): about a second.
constexpr double kMostSteps = 1e8;
// Smaller extents are left as they are: windows, and numbers of operands.
constexpr int64_t kSmallExtent = 16;

// The largest error that is rounding.
double RoundingOf(ir::DType dtype) {
  return kRounding + kRoundings * Stored(dtype, {.relative = 0, .absolute = 0}).relative;
}

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
  std::map<int64_t, int64_t> instead = {};  // extents of inputs and constants that become smaller
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
    TensorType smaller = type;
    for (int64_t& extent : smaller.shape) {
      if (const auto found = kept.instead.find(extent); found != kept.instead.end())
        extent = found->second;
    }
    if (constant) {
      made[v] = part.Constant(name, graph::LeadingPart(data->second, smaller.shape));
      continue;
    }
    made[v] = part.Input(name, smaller);
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

double CostOf(const Graph& graph) {
  double cost = 0;
  for (const Node& node : graph.nodes)
    cost += graph::EvaluationCost(node.kind, node.attrs, graph::InputTypes(graph, node));
  return cost;
}

// A part before and after its substitution.
struct Pair {
  Graph before, after;
  double cost = 0;
};

class PartCheck {
 public:
  PartCheck(const Graph& graph, const std::vector<substitution::DirectedRule>& rules,
            const plan::Substitution& substitution)
      : graph_(graph),
        rules_(rules),
        substitution_(substitution),
        nodes_(NodesOf(graph, substitution)) {}

  // What is the same for all places that are alike.
  std::string Kind() const {
    std::string kind = absl::StrCat(substitution_.rule, " ", substitution_.way);
    for (const Node* node : nodes_) {
      absl::StrAppend(&kind, " ", graph::NameOf(node->kind), graph::ExactText(node->attrs));
      for (const TensorType& type : graph::InputTypes(graph_, *node))
        absl::StrAppend(&kind, " ", graph::ToText(type));
    }
    return kind;
  }

  // A rule may need a constant, or an extent: the first part to which it applies is taken, and made smaller until its
  // evaluation is short.
  absl::StatusOr<Pair> Part() const {
    absl::StatusOr<Pair> found = absl::InternalError("matched nodes make no graph");
    Kept kept;
    for (const Kept& all : {Kept{}, Kept{.constants = true}, Kept{.extents = true},
                            Kept{.extents = true, .constants = true}}) {
      absl::StatusOr<Pair> pair = With(all);
      if (!pair.ok() && pair.status() == absl::AbortedError("")) continue;
      found = std::move(pair);
      kept = all;
      if (found.ok()) break;
    }
    if (!found.ok()) return found;
    const auto smaller = [&](const std::map<int64_t, int64_t>& instead) {
      Kept less = kept;
      less.instead = instead;
      absl::StatusOr<Pair> pair = With(less);
      if (!pair.ok() || pair->cost >= found->cost) return false;
      found = std::move(pair);
      kept = std::move(less);
      return true;
    };
    const std::set<int64_t, std::greater<>> extents = LargeExtents(found->before);
    for (const int64_t divisor : {8, 4, 2}) {
      std::map<int64_t, int64_t> instead;
      for (const int64_t extent : extents) {
        if (extent % divisor == 0) instead[extent] = extent / divisor;
      }
      if (found->cost <= kMostSteps || smaller(instead)) break;
    }
    // Distinct extents stay distinct, so that a confusion of two shows.
    int64_t next = kSmallExtent / 3;
    for (const int64_t extent : extents) {
      if (found->cost <= kMostSteps) break;
      std::map<int64_t, int64_t> instead = kept.instead;
      instead[extent] = next++;
      smaller(instead);
    }
    return found;
  }

 private:
  // Aborted, without a message: the nodes make no such part.
  absl::StatusOr<Pair> With(const Kept& kept) const {
    std::optional<Graph> before = PartOf(graph_, nodes_, kept);
    if (!before.has_value()) return absl::AbortedError("");
    HEDDLE_ASSIGN_OR_RETURN(Graph after,
                            substitution::Substituted(*before, rules_, substitution_, nullptr));
    const double cost = CostOf(*before) + CostOf(after);
    return Pair{*std::move(before), std::move(after), cost};
  }

  static std::set<int64_t, std::greater<>> LargeExtents(const Graph& part) {
    std::set<int64_t, std::greater<>> extents;
    const auto add = [&](ValueId v) {
      for (const int64_t extent : part.values[static_cast<size_t>(v)].type.shape) {
        if (extent > kSmallExtent) extents.insert(extent);
      }
    };
    for (const ValueId v : part.inputs) add(v);
    for (const auto& [v, data] : part.constants) add(v);
    return extents;
  }

  const Graph& graph_;
  const std::vector<substitution::DirectedRule>& rules_;
  const plan::Substitution& substitution_;
  const std::vector<const Node*> nodes_;
};

// Evaluates both on random inputs; `what` names what made the second of the first.
absl::Status Compare(const Graph& before, const Graph& after, const std::string& what) {
  SplitMix random(1);
  std::vector<TensorData> inputs;
  for (const ValueId v : before.inputs)
    inputs.push_back(RandomData(before.values[static_cast<size_t>(v)].type, &random));
  HEDDLE_ASSIGN_OR_RETURN(const auto expected, graph::EvaluateGraph(before, inputs));
  HEDDLE_ASSIGN_OR_RETURN(const auto found, graph::EvaluateGraph(after, inputs));
  for (size_t i = 0; i < expected.size(); ++i) {
    const double error = RelativeError(graph::ToDoubles(found[i]), graph::ToDoubles(expected[i]));
    if (error <= RoundingOf(expected[i].type.dtype)) continue;
    return absl::FailedPreconditionError(
        absl::StrCat(what, " changes a result by ", error, " of its magnitude"));
  }
  return absl::OkStatus();
}

absl::Status CheckPart(const Graph& graph, const std::vector<substitution::DirectedRule>& rules,
                       const plan::Substitution& substitution, std::set<std::string>* checked) {
  const PartCheck check(graph, rules, substitution);
  std::string kind = check.Kind();
  if (checked->contains(kind)) return absl::OkStatus();
  const std::string what =
      absl::StrCat("substitution '", substitution.rule, "' at node '", substitution.nodes[0], "'");
  HEDDLE_ASSIGN_OR_RETURN(const Pair pair, check.Part());
  if (pair.cost > kMostSteps) {
    return absl::FailedPreconditionError(absl::StrCat(
        what, " cannot be checked: an evaluation takes ", pair.cost, " steps, over ", kMostSteps));
  }
  HEDDLE_RETURN_IF_ERROR(Compare(pair.before, pair.after, what));
  checked->insert(std::move(kind));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Graph> SubstitutedAndChecked(const Graph& graph,
                                            const std::vector<substitution::DirectedRule>& rules,
                                            const std::vector<plan::Substitution>& substitutions,
                                            graph::FoldMemo* memo, std::set<std::string>* checked) {
  Graph now = graph;
  for (const plan::Substitution& substitution : substitutions) {
    HEDDLE_RETURN_IF_ERROR(CheckPart(now, rules, substitution, checked));
    HEDDLE_RETURN_IF_ERROR(substitution::Substitute(rules, substitution, memo, &now));
  }
  if (!substitutions.empty() && CostOf(graph) + CostOf(now) <= kMostSteps) {
    HEDDLE_RETURN_IF_ERROR(Compare(
        graph, now,
        absl::StrCat("a row of ", substitutions.size(), " substitutions, of which the first is '",
                     substitutions[0].rule, "',")));
  }
  return now;
}

}  // namespace heddle
