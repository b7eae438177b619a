// Imports ONNX files as graphs, with the checker and shape inference of libonnx.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/graph/core/graph.h"
#include "compiler/graph/passes/constant_budget.h"

namespace heddle::graph {

struct ImportOptions {
  // Shapes of inputs with symbolic or missing dimensions, by input name.
  std::map<std::string, std::vector<int64_t>> shapes;
  // Limit on the bytes of all constants made at import together; Unimplemented beyond it.
  int64_t constant_bytes = ConstantBudget::kBytes;
};

// Errors, all one line: InvalidArgument for bytes that are not a valid ONNX model (truncated,
// empty, failing the checker), a dynamic shape without an entry in `shapes` (names the input and
// the flag), external data (refused: the importer opens no path a model names); Unimplemented
// listing every unsupported operator at once as "Op (node 'n', opset 13)". The result has
// inference-time semantics (dropout is identity) and is not optimised.
absl::StatusOr<Graph> ImportOnnx(std::string_view bytes, const ImportOptions& options = {});

// Names of ONNX operators the importer translates, sorted; for documentation and tests.
std::vector<std::string> SupportedOnnxOps();
// The same with opsets and limits, as Markdown: the text of docs/onnx-operators.md.
std::string OnnxOperatorTable();

}  // namespace heddle::graph
