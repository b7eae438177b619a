// The reference result of a model: the interpreter runs one operator at a time.
#include <algorithm>
#include <memory>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "compiler/driver/compile.h"
#include "compiler/driver/import_model.h"
#include "compiler/graph/passes/evaluate.h"

namespace heddle {
namespace {

// With independent rows, the graph for as many as the first input has. If that is no whole number, the graph for one row: its
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

}  // namespace

absl::StatusOr<std::vector<std::string>> InterpretModel(
    std::string_view onnx, const ModelOptions& options, const std::vector<std::string>& inputs,
    const std::function<void(int done, int total)>& progress) {
  HEDDLE_ASSIGN_OR_RETURN(const graph::Graph graph, GraphFor(onnx, options, inputs));
  std::vector<graph::TensorData> tensors(inputs.size());
  for (size_t i = 0; i < std::min(inputs.size(), graph.inputs.size()); ++i) {
    const graph::Value& value = graph.values[graph.inputs[i]];
    const int64_t wanted = graph::NumElements(value.type) * ir::SizeOf(value.type.dtype);
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
