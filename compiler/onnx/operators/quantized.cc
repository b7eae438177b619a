// Translation of the ONNX operators on quantised tensors. They become ordinary operators: integers
// are widened to i32, and scales are floats.
#include "absl/strings/str_cat.h"
#include "compiler/onnx/narrow.h"
#include "compiler/onnx/node.h"
#include "compiler/onnx/operators/formulas.h"
#include "compiler/onnx/precision.h"
#include "compiler/onnx/slices.h"

namespace heddle::graph {
namespace {

using ir::DType;

constexpr int64_t kLargestBlock = int64_t{1} << 31;

// Shapes a scale or zero point for broadcasting: one element becomes a scalar, a longer vector lies
// along `axis`. With blocks, it has the rank of `like`, and each of its elements counts for
// `block` neighbours along the axis.
ValueId Spread(NodeImport& n, ValueId v, int64_t axis, Shape like, int64_t block = 0) {
  const int rank = static_cast<int>(like.size());
  if (block == 0) {
    return n.Rank(v) == 1 && n.ShapeOf(v)[0] > 1
               ? n.AlongAxis(v, static_cast<int>(n.Axis(axis, rank)), rank)
               : n.Reshape(v, {});
  }
  if (!n.ok()) return -1;
  if (block < 0 || block > kLargestBlock) {
    n.Fail(absl::StrCat("has blocks of ", block, " elements"));
    return -1;
  }
  const int64_t a = n.Axis(axis, rank);
  if (!n.ok()) return -1;
  const int64_t blocks = (like[a] + block - 1) / block;
  Shape expected = like;
  expected[a] = blocks;
  if (n.ShapeOf(v) != expected) {
    n.Fail("the shape of the scales does not fit block_size");
    return -1;
  }
  if (like[a] % block != 0) {
    if (!n.CanMake({DType::kI64, {like[a]}})) return -1;
    std::vector<int64_t> block_of;
    for (int64_t i = 0; i < like[a]; ++i) block_of.push_back(i / block);
    return n.Emit(OpKind::kGather, {v, n.Constant(FromInts(block_of))}, {{"axis", a}});
  }
  Shape apart = expected;
  apart.insert(apart.begin() + a + 1, 1);
  Shape repeated = apart;
  repeated[a + 1] = block;
  return n.Reshape(n.Emit(OpKind::kExpand, {n.Reshape(v, apart)}, {{"shape", repeated}}), like);
}

// round(x) + zero point, saturated to the ONNX integer type; `zero` is a float.
ValueId Saturate(NodeImport& n, ValueId x, ValueId zero, int to) {
  const IntRange range = RangeOf(to);
  const ValueId y = n.Emit(OpKind::kAdd, {n.Emit(OpKind::kRound, {x}), zero});
  const auto held = FromOnnxType(to);
  if (!held.ok()) return -1;
  return n.Cast(n.Emit(OpKind::kClip, {y}, {{"min", range.low}, {"max", range.high}}), *held);
}

// The type of the zero point `input`, which is that of the result.
int QuantisedType(NodeImport& n, int input) {
  return n.Has(input) ? n.OnnxType(input) : onnx::TensorProto::UINT8;
}

void QuantizeLinear(NodeImport& n) {
  const int64_t block = n.Int("block_size"), axis = n.Int("axis", 1);
  const ValueId input = n.In(0), scale = n.In(1);
  // The division rounds to this type.
  DType precise = n.Type(scale).dtype;
  if (const int64_t given = n.Int("precision"); given != 0) {
    const auto wanted = FromOnnxType(static_cast<int>(given));
    if (!wanted.ok() || !ir::IsFloat(*wanted)) return n.Unsupported("this precision");
    precise = *wanted;
  }
  int to = QuantisedType(n, 2);
  if (const int64_t given = n.Int("output_dtype"); given != 0 && n.ok()) {
    if (n.Has(2) && given != to) return n.Fail("output_dtype is not the zero point's type");
    to = static_cast<int>(given);
  }
  if (!n.ok()) return;
  const Shape shape = n.ShapeOf(input);
  const ValueId x = n.Emit(OpKind::kDiv, {n.Cast(input, precise),
                                          n.Cast(Spread(n, scale, axis, shape, block), precise)});
  const ValueId single = n.Cast(x, DType::kF32);
  const auto held = FromOnnxType(to);
  if (!held.ok()) return n.Unsupported(std::string(held.status().message()));
  const bool saturate = n.Int("saturate", 1) != 0;
  const ValueId zero = n.Has(2) ? Spread(n, n.Cast(n.In(2), DType::kF32), axis, shape, block)
                                : n.ScalarLike(0, single);
  if (ir::IsFloat(*held))
    return n.Set(0, CastToOnnx(n, n.Emit(OpKind::kAdd, {single, zero}), to, saturate));
  n.Set(0, Saturate(n, single, zero, to));
}

void DequantizeLinear(NodeImport& n) {
  const int64_t block = n.Int("block_size"), axis = n.Int("axis", 1);
  ValueId x = n.In(0);
  const ValueId scale = n.In(1);
  if (!n.ok()) return;
  DType result = n.Type(scale).dtype;
  if (const int64_t to = n.Int("output_dtype"); to != 0) {
    const auto wanted = FromOnnxType(static_cast<int>(to));
    if (!wanted.ok() || !ir::IsFloat(*wanted)) return n.Unsupported("this type of the result");
    result = *wanted;
  }
  const Shape shape = n.ShapeOf(x);
  const DType wide = ir::IsFloat(n.Type(x).dtype) ? DType::kF32 : DType::kI32;
  x = n.Cast(x, wide);
  if (n.Has(2)) x = n.Emit(OpKind::kSub, {x, Spread(n, n.Cast(n.In(2), wide), axis, shape, block)});
  const ValueId factor = n.Cast(Spread(n, scale, axis, shape, block), DType::kF32);
  n.Set(0, n.Cast(n.Emit(OpKind::kMul, {n.Cast(x, DType::kF32), factor}), result));
}

struct Quantised {
  ValueId values, scale, zero;
};

// Quantises to u8 by the range of the values. Of zeros only, the scale is 1, as in ONNX Runtime.
Quantised QuantisedByRange(NodeImport& n, ValueId x) {
  Shape axes;
  for (int d = 0; d < n.Rank(x); ++d) axes.push_back(d);
  const Attrs over{{"axes", axes}, {"keepdims", int64_t{0}}};
  const ValueId nothing = n.ScalarLike(0, x);
  const ValueId high = n.Emit(OpKind::kMax, {n.Emit(OpKind::kReduceMax, {x}, over), nothing});
  const ValueId low = n.Emit(OpKind::kMin, {n.Emit(OpKind::kReduceMin, {x}, over), nothing});
  const ValueId range = n.Emit(OpKind::kSub, {high, low});
  const ValueId scale =
      n.Emit(OpKind::kWhere, {n.Emit(OpKind::kEqual, {range, nothing}), n.ScalarLike(1, x),
                              n.Emit(OpKind::kDiv, {range, n.ScalarLike(255, x)})});
  const ValueId zero =
      Saturate(n, n.Emit(OpKind::kDiv, {n.Emit(OpKind::kSub, {nothing, low}), scale}), nothing,
               onnx::TensorProto::UINT8);
  const ValueId values = Saturate(n, n.Emit(OpKind::kDiv, {x, scale}), n.Cast(zero, DType::kF32),
                                  onnx::TensorProto::UINT8);
  return {values, scale, zero};
}

void DynamicQuantizeLinear(NodeImport& n) {
  const Quantised y = QuantisedByRange(n, n.In(0));
  n.Set(0, y.values);
  n.Set(1, y.scale);
  n.Set(2, y.zero);
}

// Operand `input`, widened to i32, minus its zero point. The zero point is input `zero` of the
// node; if it is a vector, it lies along `axis`.
ValueId Widened(NodeImport& n, int input, int zero, int64_t axis) {
  const ValueId x = n.Cast(n.In(input), DType::kI32);
  if (!n.Has(zero)) return x;
  return n.Emit(OpKind::kSub, {x, Spread(n, n.Cast(n.In(zero), DType::kI32), axis, n.ShapeOf(x))});
}

void MatMulInteger(NodeImport& n) {
  n.Set(0, n.Emit(OpKind::kMatmul, {Widened(n, 0, 2, -2), Widened(n, 1, 3, -1)}));
}

// Scales the accumulator of a product to the quantised result.
ValueId Requantise(NodeImport& n, ValueId sum, ValueId scale_a, ValueId scale_b, int result_scale,
                   int result_zero) {
  const auto Scale = [](NodeImport& m, int i) {
    return m.Reshape(m.Cast(m.In(i), DType::kF32), {});
  };
  const ValueId factor =
      n.Emit(OpKind::kDiv, {n.Emit(OpKind::kMul, {scale_a, scale_b}), Scale(n, result_scale)});
  const ValueId zero = n.Reshape(n.Cast(n.In(result_zero), DType::kF32), {});
  return Saturate(n, n.Emit(OpKind::kMul, {n.Cast(sum, DType::kF32), factor}), zero,
                  QuantisedType(n, result_zero));
}

void QLinearMatMul(NodeImport& n) {
  const ValueId sum = n.Emit(OpKind::kMatmul, {Widened(n, 0, 2, -2), Widened(n, 3, 5, -1)});
  const Shape shape = n.ShapeOf(sum);
  const ValueId a = Spread(n, n.Cast(n.In(1), DType::kF32), -2, shape);
  const ValueId b = Spread(n, n.Cast(n.In(4), DType::kF32), -1, shape);
  n.Set(0, Requantise(n, sum, a, b, 6, 7));
}

ValueId IntegerConv(NodeImport& n, ValueId x, ValueId w) {
  const int dims = n.Rank(x) - 2;
  if (!n.ok()) return -1;
  n.OneOf("auto_pad", {"NOTSET"});
  if (dims < 1 || dims > 3) {
    n.Unsupported(absl::StrCat(dims, " spatial dimensions"));
    return -1;
  }
  if (n.HasAttr("kernel_shape") &&
      n.Ints("kernel_shape") != Shape(n.ShapeOf(w).begin() + 2, n.ShapeOf(w).end()))
    n.Fail("kernel_shape is not that of the weights");
  Attrs attrs{{"groups", n.Int("group")}};
  for (const char* name : {"strides", "dilations", "pads"}) {
    if (n.HasAttr(name)) attrs[name] = n.Ints(name);
  }
  return n.Emit(kConvolutions[dims - 1], {x, w}, attrs);
}

void ConvInteger(NodeImport& n) {
  n.Set(0, IntegerConv(n, Widened(n, 0, 2, 1), Widened(n, 1, 3, 0)));
}

void QLinearConv(NodeImport& n) {
  ValueId sum = IntegerConv(n, Widened(n, 0, 2, 1), Widened(n, 3, 5, 0));
  const int rank = n.Rank(sum);
  if (n.Has(8)) sum = n.Emit(OpKind::kAdd, {sum, n.AlongAxis(n.In(8), 1, rank)});
  n.Set(0, Requantise(n, sum, n.Reshape(n.In(1), {}), Spread(n, n.In(4), 1, n.ShapeOf(sum)), 6, 7));
}

// ---- Operators of ONNX Runtime ----

// Operand i as f32: minus its zero point, times its scale, which are the two operands after it.
ValueId RealOperand(NodeImport& n, int i) {
  const ValueId x = n.Cast(Widened(n, i, i + 2, 0), DType::kF32);
  return n.Emit(OpKind::kMul, {x, n.Reshape(n.In(i + 1), {})});
}

// Sets the result to y plus the zero point after the operand `scale`, rounded. Without a zero point,
// the result has the type of operand 0.
void SetRoundedWithZero(NodeImport& n, ValueId y, int scale) {
  const bool has_zero = n.Has(scale + 1);
  const DType dtype = n.Type(n.In(has_zero ? scale + 1 : 0)).dtype;
  const ValueId zero =
      has_zero ? n.Reshape(n.Cast(n.In(scale + 1), DType::kF32), {}) : n.ScalarLike(0, y);
  n.Set(0, Saturate(n, y, zero,
                    dtype == DType::kI8 ? onnx::TensorProto::INT8 : onnx::TensorProto::UINT8));
}

// The same with y in multiples of the scale.
void SetQuantised(NodeImport& n, ValueId y, int scale) {
  SetRoundedWithZero(n, n.Emit(OpKind::kDiv, {y, n.Reshape(n.In(scale), {})}), scale);
}

// ONNX Runtime adds the multiples of both operands to what their zero points and that of the result
// make, and rounds that. So halves are rounded as there.
void QLinearAdd(NodeImport& n) {
  const ValueId scale = n.Reshape(n.In(6), {});
  const auto zero = [&](int i) {
    return n.Has(i) ? n.Reshape(n.Cast(n.In(i), DType::kF32), {}) : n.ScalarLike(0, scale);
  };
  const auto ratio = [&](int i) { return n.Emit(OpKind::kDiv, {n.Reshape(n.In(i), {}), scale}); };
  const auto mul = [&](ValueId x, ValueId y) { return n.Emit(OpKind::kMul, {x, y}); };
  const auto add = [&](ValueId x, ValueId y) { return n.Emit(OpKind::kAdd, {x, y}); };
  const ValueId a = n.In(0), by_a = ratio(1), by_b = ratio(4);
  const ValueId fixed =
      n.Emit(OpKind::kSub, {zero(7), add(mul(by_a, zero(2)), mul(by_b, zero(5)))});
  const ValueId sum =
      add(add(fixed, mul(n.Cast(a, DType::kF32), by_a)), mul(n.Cast(n.In(3), DType::kF32), by_b));
  n.Set(0, Saturate(
               n, sum, n.ScalarLike(0, sum),
               n.Type(a).dtype == DType::kI8 ? onnx::TensorProto::INT8 : onnx::TensorProto::UINT8));
}

void QLinearMul(NodeImport& n) {
  SetQuantised(n, n.Emit(OpKind::kMul, {RealOperand(n, 0), RealOperand(n, 3)}), 6);
}

void QLinearSigmoid(NodeImport& n) {
  SetQuantised(n, n.Emit(OpKind::kSigmoid, {RealOperand(n, 0)}), 3);
}

void QLinearLeakyRelu(NodeImport& n) {
  const Attrs attrs{{"alpha", n.Float("alpha")}};
  SetQuantised(n, n.Emit(OpKind::kLeakyRelu, {RealOperand(n, 0)}, attrs), 3);
}

// The operand says which opset's Softmax it is: before 13, over all dimensions from the axis on.
void QLinearSoftmax(NodeImport& n) {
  const ValueId x = RealOperand(n, 0);
  const int rank = n.Rank(x);
  Shape axes{n.Axis(n.Int("axis"), rank)};
  constexpr int64_t kOneAxis = 13;
  while (n.Int("opset") < kOneAxis && axes.back() + 1 < rank) axes.push_back(axes.back() + 1);
  // ONNX Runtime multiplies by the whole part of 1 / scale: of the scale 1 / 255, that is 254.
  const ValueId steps =
      n.Emit(OpKind::kFloor, {n.Emit(OpKind::kReciprocal, {n.Reshape(n.In(3), {})})});
  const ValueId y = n.Emit(OpKind::kSoftmax, {x}, {{"axes", axes}});
  SetRoundedWithZero(n, n.Emit(OpKind::kMul, {y, steps}), 3);
}

void QLinearConcat(NodeImport& n) {
  if (n.NumInputs() % 3 != 2) return n.Fail("needs a scale and a zero point for each operand");
  std::vector<ValueId> parts;
  for (int i = 2; i < n.NumInputs(); i += 3) parts.push_back(RealOperand(n, i));
  const int64_t axis = n.Axis(n.Int("axis"), n.Rank(parts[0]));
  SetQuantised(n, Concat(n, parts, axis), 0);
}

void QLinearWhere(NodeImport& n) {
  SetQuantised(n, n.Emit(OpKind::kWhere, {n.In(0), RealOperand(n, 1), RealOperand(n, 4)}), 7);
}

// With the channels in the second dimension, or in the last one.
Shape SpatialAxes(NodeImport& n, ValueId x) {
  Shape axes;
  const int first = n.Int("channels_last") != 0 ? 1 : 2;
  for (int d = 0; d < n.Rank(x) - 2; ++d) axes.push_back(first + d);
  return axes;
}

void QLinearGlobalAveragePool(NodeImport& n) {
  const ValueId x = RealOperand(n, 0);
  if (n.Rank(x) < 3) return n.Fail("needs spatial dimensions");
  SetQuantised(
      n, n.Emit(OpKind::kReduceMean, {x}, {{"axes", SpatialAxes(n, x)}, {"keepdims", int64_t{1}}}),
      3);
}

void QLinearAveragePool(NodeImport& n) {
  const ValueId x = RealOperand(n, 0);
  if (n.Int("channels_last") == 0) return SetQuantised(n, AveragePoolOf(n, x), 3);
  if (n.Rank(x) < 3) return n.Fail("needs spatial dimensions");
  Shape first{0, n.Rank(x) - 1}, last{0};
  for (int64_t d = 1; d < n.Rank(x) - 1; ++d) first.push_back(d), last.push_back(d + 1);
  last.push_back(1);
  SetQuantised(n, n.Transpose(AveragePoolOf(n, n.Transpose(x, first)), last), 3);
}

// A vector along the last dimension, a scalar, or what broadcasts to the shape.
ValueId AlongColumns(NodeImport& n, ValueId v, const Shape& shape) {
  return n.ok() && n.Rank(v) < 2 ? Spread(n, v, -1, shape) : v;
}

void QGemm(NodeImport& n) {
  const bool turn_a = n.Int("transA") != 0, turn_b = n.Int("transB") != 0;
  ValueId a = Widened(n, 0, 2, 0), b = Widened(n, 3, 5, turn_b ? 0 : 1);
  if (n.ok() && (n.Rank(a) != 2 || n.Rank(b) != 2)) return n.Fail("needs matrices");
  if (turn_a) a = n.Transpose(a, {1, 0});
  if (turn_b) b = n.Transpose(b, {1, 0});
  ValueId sum = n.Emit(OpKind::kMatmul, {a, b});
  if (n.Has(6)) sum = n.Emit(OpKind::kAdd, {sum, n.In(6)});
  const ValueId scale_a = n.Reshape(n.In(1), {});
  ValueId factor = n.Emit(OpKind::kMul, {n.ScalarLike(n.Float("alpha"), scale_a), scale_a});
  factor = n.Emit(OpKind::kMul, {factor, AlongColumns(n, n.In(4), n.ShapeOf(sum))});
  if (!n.Has(7)) {
    if (n.Has(8)) return n.Fail("has a zero point of the result without its scale");
    return n.Set(0, n.Emit(OpKind::kMul, {n.Cast(sum, DType::kF32), factor}));
  }
  factor = n.Emit(OpKind::kDiv, {factor, n.Reshape(n.In(7), {})});
  const ValueId y = n.Emit(OpKind::kMul, {n.Cast(sum, DType::kF32), factor});
  const ValueId zero = n.Has(8) ? n.Reshape(n.Cast(n.In(8), DType::kF32), {}) : n.ScalarLike(0, y);
  n.Set(0, Saturate(n, y, zero, QuantisedType(n, 8)));
}

// a and b are integers without zero points, in i32; the scales are f32.
ValueId Scaled(NodeImport& n, ValueId a, ValueId b, ValueId scale_a, ValueId scale_b) {
  const ValueId sum = n.Cast(n.Emit(OpKind::kMatmul, {a, b}), DType::kF32);
  const ValueId factor = n.Emit(OpKind::kMul, {scale_a, AlongColumns(n, scale_b, n.ShapeOf(sum))});
  return n.Emit(OpKind::kMul, {sum, factor});
}

// Operand `input` minus the zero points of its columns.
ValueId WidenedColumns(NodeImport& n, int input, int zero) {
  const ValueId b = n.Cast(n.In(input), DType::kI32);
  if (!n.Has(zero)) return b;
  return n.Emit(OpKind::kSub, {b, AlongColumns(n, n.Cast(n.In(zero), DType::kI32), n.ShapeOf(b))});
}

void MatMulIntegerToFloat(NodeImport& n) {
  const ValueId y = ScaledProduct(n, {0, 1, 2, 3, 4, 5, 6});
  if (n.ok()) n.Set(0, n.Cast(y, n.Type(n.In(2)).dtype));
}

void DynamicQuantizeMatMul(NodeImport& n) {
  const ValueId y = DynamicProduct(n, n.In(0), WidenedColumns(n, 1, 3), n.In(2));
  n.Set(0, n.Has(4) ? n.Emit(OpKind::kAdd, {y, n.In(4)}) : y);
}

// Unsigned integers of `bits` bits out of bytes, which are a constant.
ValueId UnpackedConstant(NodeImport& n, ValueId packed, int64_t bits, int64_t count) {
  if (bits == 8) return n.Reshape(packed, {count});
  const TensorData* known = n.ConstantData(packed);
  if (known == nullptr) n.Unsupported("packed weights that are no constants");
  if (!n.ok() || !n.CanMake({DType::kU8, {count}})) return -1;
  const int type = bits == 4 ? onnx::TensorProto::UINT4 : onnx::TensorProto::UINT2;
  std::string values = Unpacked(std::string(*known->bytes), type, count);
  if (static_cast<int64_t>(values.size()) != count) {
    n.Fail("the packed weights have another size than N, K, bits and block_size say");
    return -1;
  }
  return n.Constant({{DType::kU8, {count}}, SharedBytes::Of(std::move(values))});
}

// Weights in blocks along the rows of the second operand [N, K], each with a scale and a zero point.
void MatMulNBits(NodeImport& n) {
  n.Ignore({"accuracy_level"});  // in which type ONNX Runtime may compute
  const ValueId x = n.In(0), packed = n.In(1), scales = Single(n, n.In(2));
  const int64_t bits = n.Int("bits"), block = n.Int("block_size"), rows = n.Int("N"),
                size = n.Int("K");
  if (bits != 2 && bits != 4 && bits != 8) return n.Unsupported(absl::StrCat("bits = ", bits));
  constexpr int64_t kMost = int64_t{1} << 30;  // far above all models; the products do not overflow
  if (block < 8 || block % 8 != 0 || block > kMost || rows < 1 || rows > kMost || size < 1 ||
      size > kMost)
    return n.Fail("N, K or block_size is out of range");
  if (!n.ok()) return;
  const int64_t blocks = (size + block - 1) / block, count = rows * blocks;
  if (n.Rank(x) < 1 || n.ShapeOf(x).back() != size ||
      NumElements(n.Type(packed)) != count * (block / 8) * bits ||
      NumElements(n.Type(scales)) != count)
    return n.Fail("the operands do not fit N, K and block_size");
  const Shape blocked{rows, blocks, block}, each{rows, blocks, 1};
  ValueId weights = n.Reshape(UnpackedConstant(n, packed, bits, count * block), blocked);
  weights = n.Cast(weights, DType::kF32);
  ValueId zero = n.ScalarLike(static_cast<double>(int64_t{1} << (bits - 1)), weights);
  if (n.Has(3)) {
    zero = n.In(3);
    if (n.ok() && n.Type(zero).dtype == DType::kU8) {
      const int64_t row = (blocks * bits + 7) / 8 * 8 / bits;  // each begins in a new byte
      if (NumElements(n.Type(zero)) != rows * row * bits / 8)
        return n.Fail("the zero points do not fit N, K and block_size");
      zero = Part(n, n.Reshape(UnpackedConstant(n, zero, bits, rows * row), {rows, row}), 1, 0,
                  blocks);
    }
    zero = n.Reshape(n.Cast(zero, DType::kF32), each);
  }
  weights = n.Emit(OpKind::kMul, {n.Emit(OpKind::kSub, {weights, zero}), n.Reshape(scales, each)});
  weights = Part(n, n.Reshape(weights, {rows, blocks * block}), 1, 0, size);
  ValueId y = MatMulOf(n, Single(n, x), n.Transpose(weights, {1, 0}));
  if (n.Has(5)) y = n.Emit(OpKind::kAdd, {y, Single(n, n.In(5))});
  if (n.ok()) n.Set(0, n.Cast(y, n.Type(x).dtype));
}

}  // namespace

ValueId ScaledProduct(NodeImport& n, const IntegerProduct& o) {
  const ValueId scale_a = n.Reshape(Single(n, n.In(o.scale_a)), {});
  const ValueId y = Scaled(n, Widened(n, o.a, o.zero_a, -2), WidenedColumns(n, o.b, o.zero_b),
                           scale_a, Single(n, n.In(o.scale_b)));
  return n.Has(o.bias) ? n.Emit(OpKind::kAdd, {y, Single(n, n.In(o.bias))}) : y;
}

ValueId DynamicProduct(NodeImport& n, ValueId a, ValueId b, ValueId scale_b) {
  const Quantised q = QuantisedByRange(n, a);
  const ValueId from_zero =
      n.Emit(OpKind::kSub, {n.Cast(q.values, DType::kI32), n.Cast(q.zero, DType::kI32)});
  return Scaled(n, from_zero, b, q.scale, scale_b);
}

void AddQuantizedTranslations(TranslationTable& table) {
  constexpr const char* kConv = "auto_pad; more than 3 spatial dimensions";
  table["QuantizeLinear"] = QuantizeLinear;
  table["DequantizeLinear"] = DequantizeLinear;
  table["DynamicQuantizeLinear"] = DynamicQuantizeLinear;
  table["MatMulInteger"] = MatMulInteger;
  table["QLinearMatMul"] = QLinearMatMul;
  table["ConvInteger"] = {ConvInteger, kConv};
  table["QLinearConv"] = {QLinearConv, kConv};
  const auto add = [&](const char* name, Translation::Run run, const char* limits = "") {
    table[onnx::OperatorKey("com.microsoft", name)] = {run, limits};
  };
  add("QuantizeLinear", QuantizeLinear);
  add("DequantizeLinear", DequantizeLinear);
  add("QLinearAdd", QLinearAdd);
  add("QLinearMul", QLinearMul);
  add("QLinearSigmoid", QLinearSigmoid);
  add("QLinearLeakyRelu", QLinearLeakyRelu);
  add("QLinearSoftmax", QLinearSoftmax);
  add("QLinearConcat", QLinearConcat);
  add("QLinearWhere", QLinearWhere);
  add("QLinearGlobalAveragePool", QLinearGlobalAveragePool);
  add("QLinearAveragePool", QLinearAveragePool, "more than 3 spatial dimensions");
  add("QGemm", QGemm);
  add("MatMulIntegerToFloat", MatMulIntegerToFloat);
  add("DynamicQuantizeMatMul", DynamicQuantizeMatMul);
  add("MatMulNBits", MatMulNBits,
      "bits other than 2, 4 and 8; g_idx; prepacked weights; packed weights that are no constants");
}

}  // namespace heddle::graph
