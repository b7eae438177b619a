// Loads the tensors that a model stores outside of its file. Internal to the importer.
#pragma once

#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "base/files/shared_bytes.h"
#include "compiler/onnx/import.h"
#include "compiler/onnx/model.h"

namespace heddle::graph {

// Elements of initializers of the model's graph, by name.
using ElementsByName = std::map<std::string, SharedBytes>;

// Whether the elements of a tensor are stored outside of the model's file.
bool IsExternal(const onnx::TensorProto& t);

// Afterwards no tensor of the model is stored elsewhere: initializers of the graph are in the result,
// without a copy; all others (of attributes, subgraphs and functions, which are small) are copied into
// the model. InvalidArgument: a place is malformed. Errors of `load` are passed on.
absl::StatusOr<ElementsByName> TakeExternal(Model& model, const ExternalLoader& load);

}  // namespace heddle::graph
