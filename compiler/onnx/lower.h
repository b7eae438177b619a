// Rewrites models that are newer than libonnx to the newest standard that it knows. Internal to the
// importer.
#pragma once

#include "onnx/onnx_pb.h"

namespace heddle::graph {

// The newest opset that libonnx checks.
int NewestOpset();

inline constexpr char kNewerDomain[] = "heddle.newer";

// Rewrites the operators of opset 18 and later that only take a former attribute as an operand, or
// have a new attribute at its default. Lowers the version of the format: what it has added is
// either refused by name or does not matter. Operators that are translated though libonnx does not
// know them (Translation::since) move to kNewerDomain, which the checker passes over. It refuses
// all other operators of newer opsets.
void LowerToCheckedOpset(onnx::ModelProto& model);

}  // namespace heddle::graph
