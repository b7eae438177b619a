#include "compiler/substitution/substitute.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/sha256.h"
#include "base/status_macros.h"
#include "compiler/graph/core/graph_builder.h"
#include "compiler/graph/core/operator.h"

namespace heddle::substitution {
namespace {

using graph::Graph;
using graph::GraphBuilder;
using graph::Node;
using graph::OpKind;
using graph::TensorData;
using graph::ValueId;

size_t Index(ValueId v) { return static_cast<size_t>(v); }

// The target of a rule as a graph of its own, folded. Its inputs are values of the graph that is rewritten; its outputs
// are what replaces the outputs of the match.
struct SubstitutedTarget {
  Graph graph;
  std::vector<ValueId> values;  // by value of `graph`: that of the rewritten graph, or -1
};

bool SameBytes(const TensorData& a, const TensorData& b) {
  return a.type == b.type && a.bytes->data() == b.bytes->data();
}

bool SameElements(const TensorData& a, const TensorData& b) {
  return SameBytes(a, b) || (a.type == b.type && *a.bytes == *b.bytes);
}

// A constant that a rule made. Constants of equal elements share their bytes, so that graphs which have them are
// recognized as equal (GraphDigest).
TensorData Shared(const TensorData& data, graph::FoldMemo* memo) {
  Sha256 digest;
  digest.Update(graph::ToText(data.type));
  digest.Update(*data.bytes);
  const Node key{OpKind::kIdentity, "", {}, {}, {{"elements", digest.Hex()}}};
  return memo->Keep(key, {}, data);
}

absl::StatusOr<SubstitutedTarget> MakeTarget(const Graph& graph, const DirectedRule& rule,
                                             const Match& match, graph::FoldMemo* memo) {
  GraphBuilder small;
  Match here = match;
  std::map<ValueId, ValueId> map;
  std::vector<ValueId> inputs;                 // of the graph, by input of the small one
  std::map<std::string, ValueId> constant_of;  // by name
  for (auto& [name, v] : here.variables) {
    const graph::Value& value = graph.values[Index(v)];
    const auto [known, fresh] = map.try_emplace(v, -1);
    if (fresh) {
      if (const auto data = graph.constants.find(v); data != graph.constants.end()) {
        known->second = small.Constant(value.name, data->second);
        constant_of[value.name] = v;
      } else {
        known->second = small.Input(value.name, value.type);
        inputs.push_back(v);
      }
    }
    v = known->second;
  }
  here.splits.clear();
  for (const auto& [place, point] : match.splits) {
    if (const auto v = map.find(place.first); v != map.end())
      here.splits[{v->second, place.second}] = point;
  }
  here.groups.clear();
  for (const auto& [weights, count] : match.groups) {
    if (const auto v = map.find(weights); v != map.end()) here.groups[v->second] = count;
  }
  // Nodes that stand for the source, of which only the types of the outputs and one name count.
  const std::string& name = graph.nodes[static_cast<size_t>(match.nodes[0])].name;
  here.nodes = {0};
  std::vector<std::pair<std::string, ValueId>> outputs;
  for (ValueId& v : here.outputs) {
    const graph::TensorType& type = graph.values[Index(v)].type;
    HEDDLE_ASSIGN_OR_RETURN(v,
                            small.Add(OpKind::kIdentity, {small.Input("source", type)}, {}, name));
    outputs.emplace_back(absl::StrCat("result ", outputs.size()), v);
  }
  HEDDLE_ASSIGN_OR_RETURN(const Graph source, small.Build(outputs));
  HEDDLE_ASSIGN_OR_RETURN(Graph applied, Apply(source, rule, here));
  const auto is_given = [&](ValueId v, const TensorData& data) {
    const auto known = constant_of.find(applied.values[Index(v)].name);
    return known != constant_of.end() && SameBytes(data, graph.constants.at(known->second));
  };
  for (auto& [v, data] : applied.constants) {
    if (memo != nullptr && !is_given(v, data)) data = Shared(data, memo);
  }
  SubstitutedTarget target;
  HEDDLE_ASSIGN_OR_RETURN(target.graph, graph::FoldConstants(applied, memo));
  target.values.assign(target.graph.values.size(), -1);
  for (size_t i = 0; i < inputs.size(); ++i)
    target.values[Index(target.graph.inputs[i])] = inputs[i];
  return target;
}

// Puts a target into a graph.
class Splicer {
 public:
  Splicer(Graph* graph, const Match& match, SubstitutedTarget target)
      : graph_(*graph),
        old_nodes_(graph->nodes.size()),
        old_values_(graph->values.size()),
        name_(graph->nodes[static_cast<size_t>(match.nodes[0])].name),
        target_(std::move(target)) {
    std::set<ValueId> results;
    for (const ValueId v : target_.graph.outputs) results.insert(v);
    for (const auto& [v, data] : target_.graph.constants)
      target_.values[Index(v)] = ConstantOf(data);
    for (const Node& node : target_.graph.nodes) {
      ValueId& made = target_.values[Index(node.outputs[0])];
      std::vector<ValueId> inputs;
      for (const ValueId v : node.inputs) inputs.push_back(target_.values[Index(v)]);
      // A result that is a value of the graph or another result is the output of a copy here.
      if (node.kind == OpKind::kIdentity && results.contains(node.outputs[0])) {
        made = inputs[0];
        continue;
      }
      made = NewValue(target_.graph.values[Index(node.outputs[0])].type);
      new_nodes_.push_back({node.kind, "", std::move(inputs), {made}, node.attrs});
    }
    for (size_t i = 0; i < match.outputs.size(); ++i)
      instead_[match.outputs[i]] = target_.values[Index(target_.graph.outputs[i])];
  }

  absl::Status Run() {
    RedirectOutputs();
    if (!Order())
      return absl::FailedPreconditionError("the rule cannot be applied: it would make a cycle");
    Commit();
    return absl::OkStatus();
  }

 private:
  ValueId NewValue(graph::TensorType type) {
    new_values_.push_back({"", std::move(type)});
    return static_cast<ValueId>(old_values_ + new_values_.size()) - 1;
  }

  // The graph's constant with these elements; a new one if there is none. Passes tell constants apart by their values. So
  // equal ones have to be one value: a rule that merges weights in every step of a recurrence makes them once.
  ValueId ConstantOf(const TensorData& data) {
    for (const auto& [v, known] : graph_.constants) {
      if (SameElements(known, data)) return v;
    }
    for (const auto& [v, known] : new_constants_) {
      if (SameElements(known, data)) return v;
    }
    const ValueId made = NewValue(data.type);
    new_constants_.emplace_back(made, data);
    return made;
  }

  ValueId Now(ValueId v) const {
    const auto found = instead_.find(v);
    return found == instead_.end() ? v : found->second;
  }

  // Each output of the graph is the result of a node of its own.
  void RedirectOutputs() {
    const std::set<ValueId> inputs(graph_.inputs.begin(), graph_.inputs.end());
    std::set<ValueId> constants, taken;
    for (const auto& [v, data] : new_constants_) constants.insert(v);
    for (const ValueId v : graph_.outputs) {
      if (!instead_.contains(v)) taken.insert(v);
    }
    for (const ValueId v : graph_.outputs) {
      ValueId now = Now(v);
      if (instead_.contains(v) && (inputs.contains(now) || constants.contains(now) ||
                                   graph_.constants.contains(now) || taken.contains(now))) {
        const ValueId copy = NewValue(graph_.values[Index(v)].type);
        new_nodes_.push_back({OpKind::kIdentity, "", {now}, {copy}, {}});
        now = copy;
      }
      taken.insert(now);
      outputs_.push_back(now);
    }
  }

  const std::vector<ValueId>& InputsOf(size_t node) const {
    return node < old_nodes_ ? graph_.nodes[node].inputs : new_nodes_[node - old_nodes_].inputs;
  }
  ValueId InputOf(size_t node, size_t i) const {
    const ValueId v = InputsOf(node)[i];
    return node < old_nodes_ ? Now(v) : v;  // the target reads the values that were matched
  }

  // Finds the nodes that are needed, in an order in which each comes after those that it reads. False: there is
  // a cycle.
  bool Order() {
    const size_t nodes = old_nodes_ + new_nodes_.size();
    std::vector<int> maker(old_values_ + new_values_.size(), -1);
    for (size_t n = 0; n < old_nodes_; ++n)
      maker[Index(graph_.nodes[n].outputs[0])] = static_cast<int>(n);
    for (size_t n = 0; n < new_nodes_.size(); ++n)
      maker[Index(new_nodes_[n].outputs[0])] = static_cast<int>(old_nodes_ + n);
    // Visits what outputs need first, to leave out dead nodes, and then orders.
    std::vector<bool> needed(nodes, false);
    std::vector<size_t> open;
    const auto need = [&](ValueId v) {
      const int n = maker[Index(v)];
      if (n < 0 || needed[static_cast<size_t>(n)]) return;
      needed[static_cast<size_t>(n)] = true;
      open.push_back(static_cast<size_t>(n));
    };
    for (const ValueId v : outputs_) need(v);
    while (!open.empty()) {
      const size_t n = open.back();
      open.pop_back();
      for (size_t i = 0; i < InputsOf(n).size(); ++i) need(InputOf(n, i));
    }
    enum class State : uint8_t { kOpen, kActive, kDone };
    std::vector<State> state(nodes, State::kOpen);
    std::vector<std::pair<size_t, size_t>> path;  // node, next input
    for (size_t first = 0; first < nodes; ++first) {
      if (!needed[first] || state[first] != State::kOpen) continue;
      path.emplace_back(first, 0);
      state[first] = State::kActive;
      while (!path.empty()) {
        auto& [n, next] = path.back();
        if (next == InputsOf(n).size()) {
          state[n] = State::kDone;
          order_.push_back(n);
          path.pop_back();
          continue;
        }
        const int from = maker[Index(InputOf(n, next++))];
        if (from < 0 || state[static_cast<size_t>(from)] == State::kDone) continue;
        if (state[static_cast<size_t>(from)] == State::kActive) return false;
        state[static_cast<size_t>(from)] = State::kActive;
        path.emplace_back(static_cast<size_t>(from), 0);
      }
    }
    return true;
  }

  // Nothing fails from here on.
  void Commit() {
    std::vector<std::string> output_names;
    for (const ValueId v : graph_.outputs) output_names.push_back(graph_.values[Index(v)].name);
    std::vector<Node> nodes;
    nodes.reserve(order_.size());
    std::vector<bool> live(old_values_ + new_values_.size(), false);
    for (const ValueId v : graph_.inputs) live[Index(v)] = true;
    for (const size_t n : order_) {
      const bool old = n < old_nodes_;
      Node& node =
          nodes.emplace_back(std::move(old ? graph_.nodes[n] : new_nodes_[n - old_nodes_]));
      for (ValueId& v : node.inputs) {
        if (old) v = Now(v);
        live[Index(v)] = true;
      }
      live[Index(node.outputs[0])] = true;
    }
    std::vector<ValueId> map(live.size(), -1);
    std::vector<graph::Value> values;
    values.reserve(live.size());
    for (size_t v = 0; v < live.size(); ++v) {
      if (!live[v]) continue;
      map[v] = static_cast<ValueId>(values.size());
      values.push_back(
          std::move(v < old_values_ ? graph_.values[v] : new_values_[v - old_values_]));
    }
    std::map<ValueId, TensorData> constants;
    for (auto& [v, data] : graph_.constants) {
      if (live[Index(v)]) constants.emplace_hint(constants.end(), map[Index(v)], std::move(data));
    }
    for (auto& [v, data] : new_constants_) {
      if (live[Index(v)]) constants.emplace(map[Index(v)], std::move(data));
    }
    for (Node& node : nodes) {
      for (ValueId& v : node.inputs) v = map[Index(v)];
      node.outputs[0] = map[Index(node.outputs[0])];
    }
    for (ValueId& v : graph_.inputs) v = map[Index(v)];
    for (ValueId& v : outputs_) v = map[Index(v)];
    graph_.outputs = std::move(outputs_);
    graph_.nodes = std::move(nodes);
    graph_.values = std::move(values);
    graph_.constants = std::move(constants);
    SetNames(output_names);
  }

  void SetNames(const std::vector<std::string>& output_names) {
    std::vector<bool> is_input(graph_.values.size(), false);
    for (const ValueId v : graph_.inputs) is_input[Index(v)] = true;
    for (size_t i = 0; i < output_names.size(); ++i) {
      std::string& name = graph_.values[Index(graph_.outputs[i])].name;
      if (name == output_names[i]) continue;
      // What has the name of the output and is not it any more gets another one.
      for (size_t v = 0; v < graph_.values.size(); ++v) {
        if (graph_.values[v].name == output_names[i] && !is_input[v]) graph_.values[v].name.clear();
      }
      name = output_names[i];
    }
    std::unordered_set<std::string> names;
    for (const graph::Value& value : graph_.values) names.insert(value.name);
    for (graph::Value& value : graph_.values) {
      if (value.name.empty()) value.name = Unique(name_, &names);
    }
    names.clear();
    for (const Node& node : graph_.nodes) names.insert(node.name);
    for (Node& node : graph_.nodes) {
      if (node.name.empty()) node.name = Unique(name_, &names);
    }
  }

  static std::string Unique(const std::string& base, std::unordered_set<std::string>* names) {
    std::string name = base;
    for (int i = 1; !names->insert(name).second; ++i) name = absl::StrCat(base, "_", i);
    return name;
  }

  Graph& graph_;
  const size_t old_nodes_, old_values_;
  const std::string name_;
  SubstitutedTarget target_;
  std::map<ValueId, ValueId> instead_;  // of outputs of the match
  std::vector<graph::Value> new_values_;
  std::vector<std::pair<ValueId, TensorData>> new_constants_;
  std::vector<Node> new_nodes_;  // they read old and new values
  std::vector<ValueId> outputs_;
  std::vector<size_t> order_;  // nodes, old ones before new ones
};

}  // namespace

absl::Status Substitute(const std::vector<DirectedRule>& rules,
                        const plan::Substitution& substitution, graph::FoldMemo* memo,
                        Graph* graph) {
  HEDDLE_ASSIGN_OR_RETURN(const NamedMatch named, FindNamed(*graph, rules, substitution));
  absl::StatusOr<SubstitutedTarget> target = MakeTarget(*graph, *named.rule, named.match, memo);
  absl::Status status = target.status();
  if (status.ok()) status = Splicer(graph, named.match, *std::move(target)).Run();
  return absl::IsFailedPrecondition(status) ? DoesNotApply(substitution) : status;
}

absl::StatusOr<Graph> Substituted(const Graph& graph, const std::vector<DirectedRule>& rules,
                                  const plan::Substitution& substitution, graph::FoldMemo* memo) {
  Graph copy = graph;
  HEDDLE_RETURN_IF_ERROR(Substitute(rules, substitution, memo, &copy));
  return copy;
}

}  // namespace heddle::substitution
