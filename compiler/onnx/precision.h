// 16-bit floats within one ONNX operator that is several here: arithmetic in f32, rounded once, at
// the end. Internal to the importer.
#pragma once

#include "compiler/onnx/node.h"

namespace heddle::graph {

// The value as f32 if it is of 16-bit floats, else the value.
inline ValueId Single(NodeImport& n, ValueId v) {
  return ir::IsHalf(n.Type(v).dtype) ? n.Cast(v, ir::DType::kF32) : v;
}

}  // namespace heddle::graph
