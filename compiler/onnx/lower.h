// Rewrites models that are newer than libonnx to the newest standard that libonnx knows. Internal
// to the importer.
#pragma once

#include "onnx/onnx_pb.h"

namespace heddle::graph {

// The newest opset that libonnx checks.
int NewestOpset();

// Rewrites those operators of opset 18 and later that only turn an attribute into an operand, or
// that have a new attribute with its default value. The checker refuses all other operators of
// newer opsets. Also lowers the version of the file format: its additions are refused by name or do
// not matter.
void LowerToCheckedOpset(onnx::ModelProto& model);

}  // namespace heddle::graph
