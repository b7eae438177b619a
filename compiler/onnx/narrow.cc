#include "compiler/onnx/narrow.h"

#include <bit>
#include <cmath>
#include <limits>

#include "compiler/ir/arithmetic.h"

namespace heddle::graph {

namespace {

using ir::DType;
using onnx::TensorProto;

struct NarrowInt {
  int type, bits;
  bool is_signed;
};
constexpr NarrowInt kInts[] = {{TensorProto::INT4, 4, true},
                               {TensorProto::UINT4, 4, false},
                               {TensorProto::INT2, 2, true},
                               {TensorProto::UINT2, 2, false}};

// A sign, an exponent and a mantissa.
struct NarrowFloat {
  int type, bits, mantissa, bias;
  double largest;
  enum { kInfinities, kOneNan, kUnsignedZero, kNumbersOnly } special;
};
constexpr NarrowFloat kFloats[] = {
    {TensorProto::FLOAT8E4M3FN, 8, 3, 7, 448, NarrowFloat::kOneNan},
    {TensorProto::FLOAT8E4M3FNUZ, 8, 3, 8, 240, NarrowFloat::kUnsignedZero},
    {TensorProto::FLOAT8E5M2, 8, 2, 15, 57344, NarrowFloat::kInfinities},
    {TensorProto::FLOAT8E5M2FNUZ, 8, 2, 16, 57344, NarrowFloat::kUnsignedZero},
    {TensorProto::FLOAT4E2M1, 4, 1, 1, 6, NarrowFloat::kNumbersOnly}};

template <typename Row, size_t n>
const Row* Find(const Row (&rows)[n], int type) {
  for (const Row& row : rows) {
    if (row.type == type) return &row;
  }
  return nullptr;
}

double ValueOf(const NarrowFloat& f, int bits) {
  const int half = 1 << (f.bits - 1);  // the sign's
  if (f.special == NarrowFloat::kUnsignedZero && bits == half)
    return std::numeric_limits<double>::quiet_NaN();
  const int rest = bits & (half - 1), mantissa = rest & ((1 << f.mantissa) - 1);
  const int exponent = rest >> f.mantissa;
  const double magnitude =
      exponent == 0 ? std::ldexp(mantissa, 1 - f.bias - f.mantissa)
                    : std::ldexp(mantissa + (1 << f.mantissa), exponent - f.bias - f.mantissa);
  if (f.special == NarrowFloat::kOneNan && rest == half - 1)
    return std::numeric_limits<double>::quiet_NaN();
  const double sign = bits & half ? -1 : 1;
  if (f.special == NarrowFloat::kInfinities && exponent == (half - 1) >> f.mantissa) {
    return mantissa == 0 ? sign * std::numeric_limits<double>::infinity()
                         : std::numeric_limits<double>::quiet_NaN();
  }
  return sign * magnitude;
}

ValueId WithScalar(NodeImport& n, OpKind kind, ValueId x, double value) {
  return n.Emit(kind, {x, n.ScalarLike(value, x)});
}

ValueId CastToInt(NodeImport& n, ValueId v, const NarrowInt& narrow) {
  const double values = 1 << narrow.bits, offset = narrow.is_signed ? values / 2 : 0;
  ValueId x = n.Cast(v, DType::kI32);
  if (offset != 0) x = WithScalar(n, OpKind::kAdd, x, offset);
  x = WithScalar(n, OpKind::kFloorMod, x, values);
  if (offset != 0) x = WithScalar(n, OpKind::kSub, x, offset);
  return n.Cast(x, *HeldIn(narrow.type));
}

// Rounds to nearest even. The sum of a double with its multiple by 2^k has as many bits of the
// double as the narrow mantissa, and the multiple is exact. Subnormal numbers have one unit.
ValueId CastToFloat(NodeImport& n, ValueId v, const NarrowFloat& narrow, bool saturate) {
  const bool keeps = saturate || narrow.special == NarrowFloat::kNumbersOnly;
  const double bound = keeps ? narrow.largest : 4 * narrow.largest;
  const ValueId x =
      n.Emit(OpKind::kClip, {n.Cast(v, DType::kF64)}, {{"min", -bound}, {"max", bound}});
  const ValueId multiple = WithScalar(n, OpKind::kMul, x, std::ldexp(1, 52 - narrow.mantissa));
  const ValueId normal = n.Emit(OpKind::kSub, {n.Emit(OpKind::kAdd, {multiple, x}), multiple});
  const double smallest = std::ldexp(1, 1 - narrow.bias),
               unit = std::ldexp(smallest, -narrow.mantissa);
  const ValueId subnormal = WithScalar(
      n, OpKind::kMul, n.Emit(OpKind::kRound, {WithScalar(n, OpKind::kMul, x, 1 / unit)}), unit);
  const ValueId is_small = WithScalar(n, OpKind::kLess, n.Emit(OpKind::kAbs, {x}), smallest);
  ValueId y = n.Emit(OpKind::kWhere, {is_small, subnormal, normal});
  if (!keeps) {
    const ValueId sign = n.Emit(OpKind::kSign, {y});
    const double beyond = narrow.special == NarrowFloat::kInfinities
                              ? std::numeric_limits<double>::infinity()
                              : std::numeric_limits<double>::quiet_NaN();
    const ValueId is_large =
        n.Emit(OpKind::kLess, {n.ScalarLike(narrow.largest, y), n.Emit(OpKind::kAbs, {y})});
    y = n.Emit(OpKind::kWhere, {is_large, WithScalar(n, OpKind::kMul, sign, beyond), y});
  }
  if (narrow.special == NarrowFloat::kNumbersOnly)  // there is no NaN
    y = n.Emit(OpKind::kWhere, {n.Emit(OpKind::kIsnan, {y}), n.ScalarLike(-0.0, y), y});
  // There is no negative zero.
  if (narrow.special == NarrowFloat::kUnsignedZero) y = WithScalar(n, OpKind::kAdd, y, 0);
  return n.Cast(y, *HeldIn(narrow.type));
}

}  // namespace

std::optional<DType> HeldIn(int onnx_type) {
  if (const NarrowInt* narrow = Find(kInts, onnx_type))
    return narrow->is_signed ? DType::kI8 : DType::kU8;
  if (Find(kFloats, onnx_type) != nullptr) return DType::kF16;
  return std::nullopt;
}

std::string Unpacked(const std::string& bytes, int onnx_type, int64_t count) {
  const NarrowInt* narrow_int = Find(kInts, onnx_type);
  const NarrowFloat* narrow_float = Find(kFloats, onnx_type);
  const int bits = narrow_int ? narrow_int->bits : narrow_float->bits, each = 8 / bits;
  std::string out;
  if (static_cast<int64_t>(bytes.size()) != (count + each - 1) / each) return out;
  for (int64_t i = 0; i < count; ++i) {  // the first element is in the lowest bits
    const int element =
        static_cast<unsigned char>(bytes[i / each]) >> (i % each * bits) & ((1 << bits) - 1);
    if (narrow_int) {
      const bool negative = narrow_int->is_signed && element >> (bits - 1);
      out += static_cast<char>(negative ? element - (1 << bits) : element);
    } else {
      const uint16_t half =
          ir::HalfBits(static_cast<float>(ValueOf(*narrow_float, element)), DType::kF16);
      out.append(reinterpret_cast<const char*>(&half), sizeof half);
    }
  }
  return out;
}

IntRange RangeOf(int onnx_type) {
  if (const NarrowInt* narrow = Find(kInts, onnx_type)) {
    const double values = 1 << narrow->bits;
    return narrow->is_signed ? IntRange{-values / 2, values / 2 - 1} : IntRange{0, values - 1};
  }
  const auto dtype = FromOnnxType(onnx_type);
  if (!dtype.ok() || !ir::IsInteger(*dtype)) return {};
  return {static_cast<double>(ir::LowestInt(*dtype)), static_cast<double>(ir::HighestInt(*dtype))};
}

ValueId CastToOnnx(NodeImport& n, ValueId v, int onnx_type, bool saturate) {
  if (const NarrowInt* narrow = Find(kInts, onnx_type)) return CastToInt(n, v, *narrow);
  if (const NarrowFloat* narrow = Find(kFloats, onnx_type))
    return CastToFloat(n, v, *narrow, saturate);
  const auto dtype = FromOnnxType(onnx_type);
  if (!dtype.ok()) {
    n.Unsupported(std::string(dtype.status().message()));
    return -1;
  }
  return n.Cast(v, *dtype);
}

}  // namespace heddle::graph
