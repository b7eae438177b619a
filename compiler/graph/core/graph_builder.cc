#include "compiler/graph/core/graph_builder.h"

#include <algorithm>
#include <optional>
#include <set>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "compiler/graph/core/operator.h"

namespace heddle::graph {

std::string GraphBuilder::Unique(Names& names, const std::string& name) {
  const std::string base = name.empty() ? "value" : name;
  auto [it, fresh] = names.emplace(base, 1);
  if (fresh) return base;
  while (true) {
    std::string candidate = absl::StrCat(base, "_", it->second++);
    if (names.emplace(candidate, 1).second) return candidate;
  }
}

ValueId GraphBuilder::AddValue(std::string name, TensorType type) {
  graph_.values.push_back({Unique(value_names_, name), std::move(type)});
  return static_cast<ValueId>(graph_.values.size()) - 1;
}

ValueId GraphBuilder::Input(const std::string& name, TensorType type) {
  graph_.inputs.push_back(AddValue(name, std::move(type)));
  return graph_.inputs.back();
}

ValueId GraphBuilder::Constant(const std::string& name, TensorData data) {
  const ValueId v = AddValue(name, data.type);
  graph_.constants.emplace(v, std::move(data));
  return v;
}

const TensorData* GraphBuilder::ConstantData(ValueId v) const {
  auto it = graph_.constants.find(v);
  return it == graph_.constants.end() ? nullptr : &it->second;
}

const Node* GraphBuilder::ProducerOf(ValueId v) const {
  auto it = producers_.find(v);
  return it == producers_.end() ? nullptr : &graph_.nodes[it->second];
}

absl::StatusOr<ValueId> GraphBuilder::Add(OpKind kind, std::vector<ValueId> inputs, Attrs attrs,
                                          const std::string& name) {
  std::vector<TensorType> types;
  for (ValueId v : inputs) types.push_back(Type(v));
  const absl::StatusOr<TensorType> type = InferType(kind, types, attrs);
  if (!type.ok()) {
    return absl::Status(type.status().code(),
                        absl::StrCat(NameOf(kind), " ", type.status().message()));
  }
  HEDDLE_RETURN_IF_ERROR(CheckSize(*type));
  if (NumElements(*type) == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(NameOf(kind), " gives ", ToText(*type), ", without elements"));
  }
  const ValueId out = AddValue(name, *type);
  producers_[out] = graph_.nodes.size();
  graph_.nodes.push_back(
      {kind, Unique(node_names_, name), std::move(inputs), {out}, std::move(attrs)});
  return out;
}

absl::StatusOr<Graph> GraphBuilder::Build(
    const std::vector<std::pair<std::string, ValueId>>& outputs) {
  std::set<ValueId> taken;
  for (const auto& [name, value] : outputs) {
    ValueId v = value;
    if (NumElements(Type(v)) == 0) {  // a constant of its own
      v = Constant(name, {Type(v), SharedBytes::Of("")});
    } else if (!IsNodeOutput(v) || taken.count(v)) {
      HEDDLE_ASSIGN_OR_RETURN(v, Add(OpKind::kIdentity, {v}, {}, name));
    }
    taken.insert(v);
    graph_.outputs.push_back(v);
  }
  // Gives each output its name. A value that already has this name gets another one, unless it is
  // an input, which the model's users know by its name.
  const std::set<ValueId> inputs(graph_.inputs.begin(), graph_.inputs.end());
  for (size_t i = 0; i < outputs.size(); ++i) {
    Value& wanted = graph_.values[graph_.outputs[i]];
    if (wanted.name == outputs[i].first) continue;
    for (size_t v = 0; v < graph_.values.size(); ++v) {
      std::string& name = graph_.values[v].name;
      if (name == outputs[i].first && !inputs.count(static_cast<ValueId>(v)))
        name = Unique(value_names_, name);
    }
    wanted.name = outputs[i].first;
    value_names_.emplace(wanted.name, 1);
  }
  return std::move(graph_);
}

namespace {

// By value: whether an output needs it. All inputs count as needed.
std::vector<bool> LiveValues(const Graph& graph) {
  std::vector<bool> live(graph.values.size(), false);
  for (ValueId v : graph.outputs) live[v] = true;
  for (size_t i = graph.nodes.size(); i-- > 0;) {
    const Node& node = graph.nodes[i];
    bool needed = false;
    for (ValueId v : node.outputs) needed |= live[v];
    if (!needed) continue;
    for (ValueId v : node.inputs) live[v] = true;
    for (ValueId v : node.outputs) live[v] = true;
  }
  for (ValueId v : graph.inputs) live[v] = true;
  return live;
}

bool AllOf(const std::vector<bool>& values) {
  return std::find(values.begin(), values.end(), false) == values.end();
}

Graph OnlyLive(const Graph& graph, const std::vector<bool>& live) {
  Graph out;
  out.lengths = graph.lengths;
  out.tables = graph.tables;
  std::vector<ValueId> map(graph.values.size(), -1);
  for (size_t v = 0; v < graph.values.size(); ++v) {
    if (!live[v]) continue;
    map[v] = static_cast<ValueId>(out.values.size());
    out.values.push_back(graph.values[v]);
  }
  for (ValueId v : graph.inputs) out.inputs.push_back(map[v]);
  for (ValueId v : graph.outputs) out.outputs.push_back(map[v]);
  for (const auto& [v, data] : graph.constants) {
    if (live[v]) out.constants.emplace(map[v], data);
  }
  for (const Node& kept : graph.nodes) {
    // The outputs of a node live together.
    if (!live[kept.outputs[0]]) continue;
    Node node = kept;
    for (ValueId& v : node.inputs) v = map[v];
    for (ValueId& v : node.outputs) v = map[v];
    out.nodes.push_back(std::move(node));
  }
  return out;
}

}  // namespace

absl::StatusOr<Graph> RewriteGraph(const Graph& graph, Rewriter rewrite) {
  GraphBuilder out;
  std::vector<ValueId> map(graph.values.size(), -1);
  for (ValueId v : graph.inputs) map[v] = out.Input(graph.values[v].name, graph.values[v].type);
  for (const auto& [v, data] : graph.constants) map[v] = out.Constant(graph.values[v].name, data);
  for (const Node& node : graph.nodes) {
    Node translated = node;
    for (ValueId& v : translated.inputs) v = map[v];
    HEDDLE_ASSIGN_OR_RETURN(std::optional<ValueId> replacement, rewrite(out, translated, node));
    if (!replacement) {
      HEDDLE_ASSIGN_OR_RETURN(replacement,
                              out.Add(node.kind, translated.inputs, node.attrs, node.name));
    }
    map[node.outputs[0]] = *replacement;
  }
  std::vector<std::pair<std::string, ValueId>> outputs;
  for (ValueId v : graph.outputs) outputs.emplace_back(graph.values[v].name, map[v]);
  HEDDLE_ASSIGN_OR_RETURN(Graph built, out.Build(outputs));
  built.lengths = graph.lengths;
  built.tables = graph.tables;
  const std::vector<bool> live = LiveValues(built);
  if (AllOf(live)) return built;
  return OnlyLive(built, live);
}

Graph RemoveDead(const Graph& graph) {
  const std::vector<bool> live = LiveValues(graph);
  return AllOf(live) ? graph : OnlyLive(graph, live);
}

std::vector<int> Producers(const Graph& graph) {
  std::vector<int> producers(graph.values.size(), -1);
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    for (ValueId v : graph.nodes[i].outputs) producers[v] = static_cast<int>(i);
  }
  return producers;
}

std::vector<int> UseCounts(const Graph& graph) {
  std::vector<int> uses(graph.values.size(), 0);
  for (const Node& node : graph.nodes) {
    for (ValueId v : node.inputs) ++uses[v];
  }
  for (ValueId v : graph.outputs) ++uses[v];
  return uses;
}

}  // namespace heddle::graph
