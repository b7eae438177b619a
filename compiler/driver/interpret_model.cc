// The reference result of a model: the interpreter runs one operator at a time.
#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "compiler/driver/compile.h"
#include "compiler/driver/import_model.h"
#include "compiler/graph/core/row_blocks.h"
#include "compiler/graph/passes/evaluate.h"

namespace heddle {
namespace {

// The model for each of its blocks of rows, largest first.
std::vector<graph::Graph> BlocksOf(const graph::Graph& graph) {
  if (graph.tables.blocks.empty()) return {graph};
  std::vector<graph::Graph> blocks;
  for (size_t b = 0; b < graph.tables.blocks.size(); ++b)
    blocks.push_back(graph::RowBlock(graph, b));
  return blocks;
}

// The rows that it computes at once.
int64_t RowsOf(const graph::Graph& block) { return block.values[block.inputs[0]].type.shape[0]; }

int64_t SizeOf(const graph::TensorType& type) {
  return graph::NumElements(type) * ir::SizeOf(type.dtype);
}

// How many rows the inputs have for a graph of independent rows; nullopt if they are no whole rows, or different numbers.
std::optional<int64_t> GivenRows(const graph::Graph& graph,
                                 const std::vector<std::string>& inputs) {
  if (!graph.tables.independent_rows || inputs.empty() || inputs.size() != graph.inputs.size())
    return std::nullopt;
  std::optional<int64_t> rows;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const graph::TensorType& type = graph.values[graph.inputs[i]].type;
    const int64_t row = SizeOf(type) / type.shape[0];
    const auto given = static_cast<int64_t>(inputs[i].size());
    if (row == 0 || given % row != 0 || (rows.has_value() && *rows != given / row))
      return std::nullopt;
    rows = given / row;
  }
  return rows;
}

// The results of any number of rows: in the largest block that fits, again and again. If none does, the smallest one is filled with
// zeros.
absl::StatusOr<std::vector<std::string>> InterpretRows(const std::vector<graph::Graph>& blocks,
                                                       int64_t rows,
                                                       const std::vector<std::string>& inputs) {
  std::vector<std::string> outputs(blocks[0].outputs.size());
  size_t b = 0;
  for (int64_t first = 0, block = 0; first < rows; first += block) {
    while (b + 1 < blocks.size() && RowsOf(blocks[b]) > rows - first) ++b;
    const graph::Graph& graph = blocks[b];
    block = RowsOf(graph);
    std::vector<graph::TensorData> tensors;
    for (size_t i = 0; i < inputs.size(); ++i) {
      const graph::TensorType& type = graph.values[graph.inputs[i]].type;
      const auto size = static_cast<size_t>(SizeOf(type));
      std::string part =
          inputs[i].substr(static_cast<size_t>(first) * (size / static_cast<size_t>(block)), size);
      part.resize(size, '\0');
      tensors.push_back({type, std::make_shared<const std::string>(std::move(part))});
    }
    HEDDLE_ASSIGN_OR_RETURN(const std::vector<graph::TensorData> results,
                            graph::EvaluateGraph(graph, tensors, {}));
    for (size_t i = 0; i < results.size(); ++i) {
      const std::string_view bytes = *results[i].bytes;
      outputs[i] += bytes.substr(0, bytes.size() / static_cast<size_t>(block) *
                                        static_cast<size_t>(std::min(block, rows - first)));
    }
  }
  return outputs;
}

}  // namespace

absl::StatusOr<std::vector<std::string>> InterpretModel(
    std::string_view onnx, const ModelOptions& options, const std::vector<std::string>& inputs,
    const std::function<void(int done, int total)>& progress) {
  HEDDLE_ASSIGN_OR_RETURN(const graph::Graph imported, ImportModel(onnx, options.import));
  const std::vector<graph::Graph> blocks = BlocksOf(imported);
  const graph::Graph& graph = blocks.back();
  if (const std::optional<int64_t> rows = GivenRows(graph, inputs);
      rows.has_value() && *rows != RowsOf(graph))
    return InterpretRows(blocks, *rows, inputs);
  std::vector<graph::TensorData> tensors(inputs.size());
  for (size_t i = 0; i < std::min(inputs.size(), graph.inputs.size()); ++i) {
    const graph::Value& value = graph.values[graph.inputs[i]];
    const int64_t wanted = SizeOf(value.type);
    if (static_cast<int64_t>(inputs[i].size()) != wanted) {
      return absl::InvalidArgumentError(absl::StrCat("input '", value.name, "' is ",
                                                     graph::ToText(value.type), " of ", wanted,
                                                     " bytes, ", inputs[i].size(), " are given"));
    }
    tensors[i] = {value.type, std::make_shared<const std::string>(inputs[i])};
  }
  HEDDLE_ASSIGN_OR_RETURN(const std::vector<graph::TensorData> results,
                          graph::EvaluateGraph(graph, tensors, progress));
  std::vector<std::string> outputs;
  outputs.reserve(results.size());
  for (const graph::TensorData& result : results) outputs.emplace_back(*result.bytes);
  return outputs;
}

}  // namespace heddle
