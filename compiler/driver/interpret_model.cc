// The reference result of a model: the interpreter runs one operator at a time.
#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "compiler/driver/compile.h"
#include "compiler/driver/import_model.h"
#include "compiler/graph/passes/evaluate.h"

namespace heddle {
namespace {

// Of a forest file, the graph for as many rows as the first input has. If that is no whole number, the graph for one row: its
// inputs then do not fit.
absl::StatusOr<graph::Graph> GraphFor(std::string_view model, const ModelOptions& options,
                                      const std::vector<std::string>& inputs) {
  if (!IsForestFile(model)) return ImportModel(model, options.import);
  graph::ImportOptions import = options.import;
  import.shapes = {{ "rows", { 1 } }};
  HEDDLE_ASSIGN_OR_RETURN(graph::Graph one, ImportModel(model, import));
  const graph::TensorType& type = one.values[one.inputs[0]].type;
  const int64_t row_bytes = graph::NumElements(type) * ir::SizeOf(type.dtype);
  const int64_t given = inputs.empty() ? 0 : static_cast<int64_t>(inputs[0].size());
  const int64_t rows = row_bytes > 0 ? given / row_bytes : 1;
  if (rows <= 1 || rows * row_bytes != given) return one;
  import.shapes = {{ "rows", { rows } }};
  return ImportModel(model, import);
}

int64_t SizeOf(const graph::TensorType& type) {
  return graph::NumElements(type) * ir::SizeOf(type.dtype);
}

// How many rows the inputs have for a graph of independent rows; nullopt if they are no whole rows, or different numbers.
std::optional<int64_t> RowsOf(const graph::Graph& graph, const std::vector<std::string>& inputs) {
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

// The results of any number of rows. The last block is filled with zeros.
absl::StatusOr<std::vector<std::string>> InterpretRows(const graph::Graph& graph, int64_t rows,
                                                       const std::vector<std::string>& inputs) {
  const int64_t block = graph.values[graph.inputs[0]].type.shape[0];
  std::vector<std::string> outputs(graph.outputs.size());
  for (int64_t first = 0; first < rows; first += block) {
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
  HEDDLE_ASSIGN_OR_RETURN(const graph::Graph graph, GraphFor(onnx, options, inputs));
  if (const std::optional<int64_t> rows = RowsOf(graph, inputs);
      rows.has_value() && *rows != graph.values[graph.inputs[0]].type.shape[0])
    return InterpretRows(graph, *rows, inputs);
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
