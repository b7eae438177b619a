// Precision of an ONNX operator that becomes several of ours: with 16-bit floats, the parts compute
// in f32 and the last one rounds. Internal to the importer.
#pragma once

#include "compiler/onnx/node.h"

namespace heddle::graph {

// Casts the value to f32 if its elements are 16-bit floats.
inline ValueId Single(NodeImport& n, ValueId v) {
  return ir::IsHalf(n.Type(v).dtype) ? n.Cast(v, ir::DType::kF32) : v;
}

}  // namespace heddle::graph
