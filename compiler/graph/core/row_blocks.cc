#include "compiler/graph/core/row_blocks.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compiler/graph/core/graph_builder.h"

namespace heddle::graph {
namespace {

// Dimension 0 of the first input; 0 if there is none.
int64_t RowsOf(const Graph& graph) {
  if (graph.inputs.empty()) return 0;
  const Shape& shape = graph.values[graph.inputs[0]].type.shape;
  return shape.empty() ? 0 : shape[0];
}

void AppendNames(const std::vector<TensorNames>& names, std::vector<TensorNames>* to) {
  to->insert(to->end(), names.begin(), names.end());
}

// The part of a list that belongs to a block.
template <typename T>
void KeepBlock(size_t block, size_t blocks, std::vector<T>* list) {
  const size_t count = list->size() / blocks;
  list->erase(list->begin() + static_cast<std::ptrdiff_t>((block + 1) * count), list->end());
  list->erase(list->begin(), list->begin() + static_cast<std::ptrdiff_t>(block * count));
}

}  // namespace

absl::Status AddRowBlock(const Graph& block, Graph* graph) {
  const int64_t rows = RowsOf(block);
  const std::string suffix = absl::StrCat("@", rows);
  std::map<std::string, ValueId> constants;  // of `graph`, by name
  for (const auto& [v, data] : graph->constants) constants[graph->values[v].name] = v;
  const std::set<ValueId> outputs(block.outputs.begin(), block.outputs.end());
  std::vector<ValueId> map;
  for (ValueId v = 0; v < static_cast<ValueId>(block.values.size()); ++v) {
    const Value& value = block.values[v];
    const auto constant = block.constants.find(v);
    if (constant != block.constants.end() && !outputs.contains(v)) {
      const auto known = constants.find(value.name);
      if (known != constants.end() &&
          graph->constants.at(known->second).type == constant->second.type &&
          *graph->constants.at(known->second).bytes == *constant->second.bytes) {
        map.push_back(known->second);
        continue;
      }
    }
    map.push_back(static_cast<ValueId>(graph->values.size()));
    graph->values.push_back({value.name + suffix, value.type});
    if (constant != block.constants.end()) graph->constants.emplace(map.back(), constant->second);
  }
  for (ValueId v : block.inputs) graph->inputs.push_back(map[v]);
  for (ValueId v : block.outputs) graph->outputs.push_back(map[v]);
  for (Node node : block.nodes) {
    node.name += suffix;
    for (ValueId& v : node.inputs) v = map[v];
    for (ValueId& v : node.outputs) v = map[v];
    graph->nodes.push_back(std::move(node));
  }
  if (graph->tables.blocks.empty()) graph->tables.blocks = {RowsOf(*graph)};
  graph->tables.blocks.push_back(rows);
  AppendNames(block.tables.inputs, &graph->tables.inputs);
  AppendNames(block.tables.outputs, &graph->tables.outputs);
  return CheckTables(*graph);
}

Graph RowBlock(const Graph& graph, size_t block) {
  const size_t blocks = std::max<size_t>(graph.tables.blocks.size(), 1);
  Graph one = graph;
  KeepBlock(block, blocks, &one.inputs);
  KeepBlock(block, blocks, &one.outputs);
  KeepBlock(block, blocks, &one.tables.inputs);
  KeepBlock(block, blocks, &one.tables.outputs);
  one.tables.blocks.clear();
  one = RemoveDead(one);
  for (size_t i = 0; i < one.inputs.size(); ++i)
    one.values[one.inputs[i]].name = graph.values[graph.inputs[i]].name;
  for (size_t i = 0; i < one.outputs.size(); ++i)
    one.values[one.outputs[i]].name = graph.values[graph.outputs[i]].name;
  return one;
}

}  // namespace heddle::graph
