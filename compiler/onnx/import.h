// Imports ONNX files as graphs. The rules of the standard are in compiler/onnx/standard.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/files/shared_bytes.h"
#include "compiler/graph/core/graph.h"
#include "compiler/graph/passes/constant_budget.h"
#include "compiler/onnx/parts.h"

namespace heddle::graph {

// Gives the elements of a tensor that the model stores outside of its file. It decides which
// locations it knows and reads; the importer itself opens nothing. An error should name the tensor.
using ExternalLoader = std::function<absl::StatusOr<SharedBytes>(const onnx::TensorPlace&)>;

struct ImportOptions {
  // Shapes of the inputs whose dimensions are symbolic or missing, by input name; or extents of
  // symbolic dimensions by their names, each as a shape of one dimension. An input's name goes first. The rows of decision trees and
  // of pipelines may have several extents, and have kUsualBlocks if they have none (classical/import_forest.h): the graph then holds the
  // model for each of them (graph/core/row_blocks.h). They are called "rows", unless the model has a name for them.
  std::map<std::string, std::vector<int64_t>> shapes;
  // Values of inputs by their names, which then are inputs no more: "16000", or "1,0,2" for a vector; one
  // number fills the whole tensor.
  std::map<std::string, std::string> input_values;
  // Limit on the total bytes of constants made at import. A model that needs more is Unimplemented.
  int64_t constant_bytes = ConstantBudget::kBytes;
  // Null: a model with external data is refused.
  ExternalLoader external;
  // If set, receives a line for each thing that is left out and that no result depends on.
  std::vector<std::string>* warnings = nullptr;
};

// Errors are one line, which names all that is refused:
// - InvalidArgument: the bytes are not a valid ONNX model (truncated, empty, against the rules of
//   its opset, operands whose shapes do not fit); a dynamic shape has no entry in `shapes` (the
//   message names the inputs and the flags); or the model has external data, and the options have no
//   loader for it.
// - Unimplemented: lists all unsupported operators as "Op (node 'n', opset 13)", with what is
//   unsupported about them, element types, and an opset that is too new.
// - any error of the loader of external data.
// The result has the semantics of inference (dropout is the identity unless its node says that it
// trains) and is not optimised. The graph of a model that draws random numbers has one more input, the
// last one: the seed, an i64 scalar.
absl::StatusOr<Graph> ImportOnnx(std::string_view bytes, const ImportOptions& options = {});

// Names of the ONNX operators that the importer translates, sorted; for documentation and tests.
// Those of other domains have it before the name ("com.microsoft.Gelu").
std::vector<std::string> SupportedOnnxOps();
// The same operators with their opsets and limits, as Markdown: the text of docs/onnx-operators.md.
std::string OnnxOperatorTable();

}  // namespace heddle::graph
