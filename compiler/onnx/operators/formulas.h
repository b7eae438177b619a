// Formulas that operators of several domains share. Each is defined beside the operator of the
// standard that it belongs to. Internal to the importer.
#pragma once

#include "compiler/onnx/node.h"

namespace heddle::graph {

// The most steps of a recurrence. It is unrolled, and each step becomes about twenty nodes.
inline constexpr int64_t kLongestSequence = 8192;

// ---- elementwise.cc; of 16-bit floats, the caller passes x in f32 ----

// x / 2 * (1 + erf(x / sqrt(2))), or with tanh(sqrt(2 / pi) (x + 0.044715 x^3)) for the erf.
ValueId GeluOf(NodeImport& n, ValueId x, bool with_tanh);
// x * sigmoid(alpha * x)
ValueId SwishOf(NodeImport& n, ValueId x, double alpha);
// Sets output i to y, in the type of operand 0.
void SetRounded(NodeImport& n, ValueId y, int i = 0);

// ---- network.cc ----

// The convolution or average pool of x by the attributes of the node, and the product of its operands
// 0 to 2 as of Gemm. A convolution has operand 2 as its bias, if it is there.
ValueId ConvOf(NodeImport& n, ValueId x, ValueId w);
ValueId AveragePoolOf(NodeImport& n, ValueId x);
ValueId GemmOf(NodeImport& n);
// A product of matrices, in which a vector counts as a row or a column.
ValueId MatMulOf(NodeImport& n, ValueId a, ValueId b);
// x / sqrt(mean(x^2) + epsilon) over the axes.
ValueId RmsNormalOf(NodeImport& n, ValueId x, const Shape& axes, double epsilon);

// ---- linear.cc ----

// The sums of squared differences of each row of x and each row of y: [rows of x, rows of y].
ValueId SquaredDistances(NodeImport& n, ValueId x, ValueId y);

// ---- attention.cc ----

// The numbers from 0 on, as a constant.
ValueId Numbers(NodeImport& n, int64_t count, const Shape& shape);
// From [batch, sequence, heads * size] to [batch, heads, sequence, size], and back. `count` names the
// attribute with the number of heads.
ValueId SplitHeads(NodeImport& n, ValueId x, int64_t heads, const char* count);
ValueId MergeHeads(NodeImport& n, ValueId x);
// The product of matrices [batch, heads, ..]; several heads of `a` may share one of `b`.
ValueId GroupedProduct(NodeImport& n, ValueId a, ValueId b);
// tanh(s / cap) * cap; no cap is 0.
ValueId Capped(NodeImport& n, ValueId s, double cap);
// Turns pairs of the first elements of x [a, b, c, size]. The caches have the shape of the pairs' first
// halves, or broadcast to it. A pair are neighbours, or two elements half of the turned ones apart.
ValueId Rotated(NodeImport& n, ValueId x, ValueId cosines, ValueId sines, bool neighbours);
// The cache with `update` in it: of sample b, from place first[b] of the axis on.
ValueId Written(NodeImport& n, ValueId cache, ValueId update, ValueId first, int64_t axis,
                bool circular);

// ---- quantized.cc ----

// Operands of a node, by their numbers. Zero points and bias may be absent.
struct IntegerProduct {
  int a, b, scale_a, scale_b, zero_a, zero_b, bias;
};
// The product of two matrices of integers, in f32: times their scales, plus a bias. `b` may have a
// scale and a zero point for each column.
ValueId ScaledProduct(NodeImport& n, const IntegerProduct& operands);
// The product of floats `a`, quantised to u8 by their range, and integers `b` in i32 without zero
// points, whose scale is one or one for each column.
ValueId DynamicProduct(NodeImport& n, ValueId a, ValueId b, ValueId scale_b);

}  // namespace heddle::graph
