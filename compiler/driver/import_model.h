// Imports a model of any format that is read: ONNX, and the files of XGBoost (JSON, UBJSON) and LightGBM (text). The
// format is recognised by the bytes, never by the file's name.
#pragma once

#include <string_view>

#include "absl/status/statusor.h"
#include "compiler/graph/core/graph.h"
#include "compiler/onnx/import.h"

namespace heddle {

// Whether the bytes are a model of decision trees in a format of its own, and not an ONNX model.
bool IsForestFile(std::string_view bytes);

// A graph may hold the model for several numbers of rows (classical::ImportForest, graph::ImportOptions). Errors as graph::ImportOnnx
// or classical::ImportForest.
absl::StatusOr<graph::Graph> ImportModel(std::string_view bytes,
                                         const graph::ImportOptions& options);

}  // namespace heddle
