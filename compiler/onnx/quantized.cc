// Translation of the ONNX operators on quantised tensors. They become ordinary operators: integers
// are widened to i32, and scales are floats.
#include "absl/strings/str_cat.h"
#include "compiler/onnx/narrow.h"
#include "compiler/onnx/node.h"

namespace heddle::graph {
namespace {

using ir::DType;

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
  const int64_t a = n.Axis(axis, rank), blocks = (like[a] + block - 1) / block;
  Shape expected = like;
  expected[a] = blocks;
  if (block < 0 || n.ShapeOf(v) != expected) {
    n.Fail("the shape of the scales does not fit block_size");
    return -1;
  }
  if (like[a] % block != 0) {
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

void DynamicQuantizeLinear(NodeImport& n) {
  const ValueId x = n.In(0);
  Shape axes;
  for (int d = 0; d < n.Rank(x); ++d) axes.push_back(d);
  const Attrs over{{"axes", axes}, {"keepdims", int64_t{0}}};
  const ValueId nothing = n.ScalarLike(0, x);
  const ValueId high = n.Emit(OpKind::kMax, {n.Emit(OpKind::kReduceMax, {x}, over), nothing});
  const ValueId low = n.Emit(OpKind::kMin, {n.Emit(OpKind::kReduceMin, {x}, over), nothing});
  const ValueId scale =
      n.Emit(OpKind::kDiv, {n.Emit(OpKind::kSub, {high, low}), n.ScalarLike(255, x)});
  const ValueId zero =
      Saturate(n, n.Emit(OpKind::kDiv, {n.Emit(OpKind::kSub, {nothing, low}), scale}), nothing,
               onnx::TensorProto::UINT8);
  n.Set(0, Saturate(n, n.Emit(OpKind::kDiv, {x, scale}), n.Cast(zero, DType::kF32),
                    onnx::TensorProto::UINT8));
  n.Set(1, scale);
  n.Set(2, zero);
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

}  // namespace

void AddQuantizedTranslations(TranslationTable& table) {
  constexpr const char* kConv = "auto_pad; more than 3 spatial dimensions";
  table["QuantizeLinear"] = QuantizeLinear;
  table["DequantizeLinear"] = DequantizeLinear;
  table["DynamicQuantizeLinear"] = DynamicQuantizeLinear;
  table["MatMulInteger"] = MatMulInteger;
  table["QLinearMatMul"] = QLinearMatMul;
  table["ConvInteger"] = {ConvInteger, kConv};
  table["QLinearConv"] = {QLinearConv, kConv};
}

}  // namespace heddle::graph
