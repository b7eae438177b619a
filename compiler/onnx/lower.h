// Models newer than libonnx knows, in the words of the newest standard it does know. Internal to
// the importer.
#pragma once

#include "onnx/onnx_pb.h"

namespace heddle::graph {

// The newest opset that libonnx checks.
int NewestOpset();

// Operators of opset 18 and later that only take an attribute as an operand now, or have a new
// attribute at its default, are written as before; the format's version is lowered, as what it
// added since is either refused by name or does not matter. What is left of newer opsets the
// checker refuses.
void LowerToCheckedOpset(onnx::ModelProto& model);

}  // namespace heddle::graph
