// Translation of the ONNX operators on quantised tensors. They become ordinary operators: integers
// are widened to i32, and scales are floats.
#include "absl/strings/str_cat.h"
#include "compiler/onnx/node.h"

namespace heddle::graph {
namespace {

using ir::DType;

// Shapes a scale or zero point for broadcasting: one element becomes a scalar, a longer vector lies
// along `axis`.
ValueId Spread(NodeImport& n, ValueId v, int64_t axis, int rank) {
  return n.Rank(v) == 1 && n.ShapeOf(v)[0] > 1
             ? n.AlongAxis(v, static_cast<int>(n.Axis(axis, rank)), rank)
             : n.Reshape(v, {});
}

// round(x) + zero point, saturated to the integer type; `zero` is a float.
ValueId Saturate(NodeImport& n, ValueId x, ValueId zero, DType to) {
  const double low = to == DType::kI8 ? -128 : 0, high = to == DType::kI8 ? 127 : 255;
  const ValueId y = n.Emit(OpKind::kAdd, {n.Emit(OpKind::kRound, {x}), zero});
  return n.Cast(n.Emit(OpKind::kClip, {y}, {{"min", low}, {"max", high}}), to);
}

DType QuantisedType(NodeImport& n, int input) {
  const DType dtype = n.Has(input) ? n.Type(n.In(input)).dtype : DType::kU8;
  if (n.ok() && dtype != DType::kU8 && dtype != DType::kI8)
    n.Unsupported("quantisation to anything but int8 and uint8");
  return dtype;
}

// Other types of scales would decide the precision of the arithmetic and the type of results.
void CheckScale(NodeImport& n, int i) {
  if (n.Has(i) && n.ok() && n.Type(n.In(i)).dtype != DType::kF32)
    n.Unsupported("scales other than float");
}

void QuantizeLinear(NodeImport& n) {
  if (n.Int("block_size") != 0) return n.Unsupported("blocks");
  n.Ignore({"saturate"});  // it concerns 8-bit floats
  CheckScale(n, 1);
  const int64_t precision = n.Int("precision");
  if (precision != 0 && precision != onnx::TensorProto::FLOAT)
    return n.Unsupported("a precision other than float");
  const ValueId x = n.Cast(n.In(0), DType::kF32);
  const int64_t axis = n.Int("axis", 1);
  DType to = QuantisedType(n, 2);
  if (const int64_t given = n.Int("output_dtype"); given != 0 && n.ok()) {
    const auto wanted = FromOnnxType(static_cast<int>(given));
    if (!wanted.ok() || (*wanted != DType::kU8 && *wanted != DType::kI8))
      return n.Unsupported("quantisation to anything but int8 and uint8");
    if (n.Has(2) && *wanted != to) return n.Fail("output_dtype is not the zero point's type");
    to = *wanted;
  }
  const ValueId scaled = n.Emit(OpKind::kDiv, {x, Spread(n, n.In(1), axis, n.Rank(x))});
  const ValueId zero =
      n.Has(2) ? Spread(n, n.Cast(n.In(2), DType::kF32), axis, n.Rank(x)) : n.ScalarLike(0, x);
  n.Set(0, Saturate(n, scaled, zero, to));
}

void DequantizeLinear(NodeImport& n) {
  if (n.Int("block_size") != 0) return n.Unsupported("blocks");
  CheckScale(n, 1);
  if (const int64_t to = n.Int("output_dtype"); to != 0 && to != onnx::TensorProto::FLOAT)
    return n.Unsupported("results other than float");
  const int64_t axis = n.Int("axis", 1);
  ValueId x = n.Cast(n.In(0), DType::kI32);
  const int rank = n.Rank(x);
  if (n.Has(2)) x = n.Emit(OpKind::kSub, {x, Spread(n, n.Cast(n.In(2), DType::kI32), axis, rank)});
  n.Set(0, n.Emit(OpKind::kMul, {n.Cast(x, DType::kF32), Spread(n, n.In(1), axis, rank)}));
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
  const ValueId zero = Saturate(
      n, n.Emit(OpKind::kDiv, {n.Emit(OpKind::kSub, {nothing, low}), scale}), nothing, DType::kU8);
  n.Set(0, Saturate(n, n.Emit(OpKind::kDiv, {x, scale}), n.Cast(zero, DType::kF32), DType::kU8));
  n.Set(1, scale);
  n.Set(2, zero);
}

// Operand `input`, widened to i32, minus its zero point. The zero point is input `zero` of the
// node; if it is a vector, it lies along `axis`.
ValueId Widened(NodeImport& n, int input, int zero, int64_t axis) {
  const ValueId x = n.Cast(n.In(input), DType::kI32);
  if (!n.Has(zero)) return x;
  return n.Emit(OpKind::kSub, {x, Spread(n, n.Cast(n.In(zero), DType::kI32), axis, n.Rank(x))});
}

void MatMulInteger(NodeImport& n) {
  n.Set(0, n.Emit(OpKind::kMatmul, {Widened(n, 0, 2, -2), Widened(n, 1, 3, -1)}));
}

// Scales the accumulator of a product to the quantised result.
ValueId Requantise(NodeImport& n, ValueId sum, ValueId scale_a, ValueId scale_b, int result_scale,
                   int result_zero) {
  const ValueId factor = n.Emit(
      OpKind::kDiv, {n.Emit(OpKind::kMul, {scale_a, scale_b}), n.Reshape(n.In(result_scale), {})});
  const ValueId zero = n.Reshape(n.Cast(n.In(result_zero), DType::kF32), {});
  return Saturate(n, n.Emit(OpKind::kMul, {n.Cast(sum, DType::kF32), factor}), zero,
                  QuantisedType(n, result_zero));
}

void QLinearMatMul(NodeImport& n) {
  for (const int scale : {1, 4, 6}) CheckScale(n, scale);
  const ValueId sum = n.Emit(OpKind::kMatmul, {Widened(n, 0, 2, -2), Widened(n, 3, 5, -1)});
  const int rank = n.Rank(sum);
  n.Set(0, Requantise(n, sum, Spread(n, n.In(1), -2, rank), Spread(n, n.In(4), -1, rank), 6, 7));
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
  n.Set(0, Requantise(n, sum, n.Reshape(n.In(1), {}), Spread(n, n.In(4), 1, rank), 6, 7));
}

}  // namespace

void AddQuantizedTranslations(TranslationTable& table) {
  constexpr const char* kConv = "auto_pad; more than 3 spatial dimensions";
  table["QuantizeLinear"] = {QuantizeLinear,
                             "results other than int8 and uint8; scales other than float; blocks"};
  table["DequantizeLinear"] = {DequantizeLinear, "scales other than float; blocks"};
  table["DynamicQuantizeLinear"] = DynamicQuantizeLinear;
  table["MatMulInteger"] = MatMulInteger;
  table["QLinearMatMul"] = {QLinearMatMul, "scales other than float"};
  table["ConvInteger"] = {ConvInteger, kConv};
  table["QLinearConv"] = {QLinearConv, kConv};
}

}  // namespace heddle::graph
