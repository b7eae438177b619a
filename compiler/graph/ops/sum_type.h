// The element type of a product's or convolution's result.
#pragma once

#include "compiler/graph/ops/op_util.h"

namespace heddle::graph {

// Sums of 16-bit floats are made in f32, and stay it where the attribute `single` asks: what
// continues the operator rounds.
inline constexpr char kSingle[] = "single";
inline AttrSpec SingleAttr() { return {kSingle, int64_t{0}}; }
inline ir::DType SumType(ir::DType operand, const OpAttrs& attrs) {
  return ir::IsHalf(operand) && attrs.Flag(kSingle) ? ir::DType::kF32 : operand;
}

}  // namespace heddle::graph
