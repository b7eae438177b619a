// Inputs that get a value at import and are inputs no more, such as the sampling rate of a speech
// model. Internal to the importer.
#pragma once

#include "absl/status/status.h"
#include "compiler/onnx/import.h"
#include "compiler/onnx/model.h"

namespace heddle::graph {

// Replaces the inputs that `options.input_values` names by initializers. InvalidArgument: there is no
// such input, it has no such type or number of elements, or its shape is open.
absl::Status FixInputValues(Model& model, const ImportOptions& options);

}  // namespace heddle::graph
