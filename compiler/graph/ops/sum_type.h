// The element type of the result of a product or convolution.
#pragma once

#include "compiler/graph/ops/op_util.h"

namespace heddle::graph {

// Sums of 16-bit floats are computed in f32. They stay f32 if the attribute `single` is set: then
// the operators that follow are part of the same model operator, which rounds at its end.
inline constexpr char kSingle[] = "single";
inline AttrSpec SingleAttr() { return {kSingle, int64_t{0}}; }
inline ir::DType SumType(ir::DType operand, const OpAttrs& attrs) {
  return ir::IsHalf(operand) && attrs.Flag(kSingle) ? ir::DType::kF32 : operand;
}

}  // namespace heddle::graph
