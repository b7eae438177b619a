// The element type of a product's or convolution's result.
#pragma once

#include "compiler/graph/ops/op_util.h"

namespace heddle::graph {

// Sums of 16-bit floats are made in f32, and stay it where the attribute `single` asks: what
// continues the operator rounds.
inline constexpr char kSingle[] = "single";
inline ir::DType SumType(ir::DType operand, const Attrs& attrs) {
  return ir::IsHalf(operand) && IntAttr(attrs, kSingle, 0) != 0 ? ir::DType::kF32 : operand;
}

}  // namespace heddle::graph
