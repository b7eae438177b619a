// Constant arithmetic.
#include "compiler/ir/arithmetic.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace heddle::ir {

int64_t WrapInt(int64_t value, DType dtype) {
  switch (dtype) {
    case DType::kBool:
      return value != 0;
    case DType::kI8:
      return static_cast<int8_t>(value);
    case DType::kU8:
      return static_cast<uint8_t>(value);
    case DType::kI32:
      return static_cast<int32_t>(value);
    case DType::kI16:
      return static_cast<int16_t>(value);
    case DType::kU16:
      return static_cast<uint16_t>(value);
    case DType::kU32:
      return static_cast<uint32_t>(value);
    default:
      return value;
  }
}

int64_t LowestInt(DType dtype) {
  if (dtype == DType::kBool || IsUnsigned(dtype)) return 0;
  return std::numeric_limits<int64_t>::min() >> (64 - 8 * SizeOf(dtype));
}

int64_t HighestInt(DType dtype) {
  if (dtype == DType::kBool) return 1;
  const auto all = ~uint64_t{0} >> (64 - 8 * SizeOf(dtype));
  return static_cast<int64_t>(IsUnsigned(dtype) ? all : all >> 1);
}

double RoundFloat(double value, DType dtype) {
  if (dtype == DType::kF64) return value;
  const auto single = static_cast<float>(value);
  return IsHalf(dtype) ? HalfValue(HalfBits(single, dtype), dtype) : single;
}

uint16_t HalfBits(float value, DType dtype) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>(bits >> 16 & 0x8000);
  if (std::isnan(value)) return sign | (dtype == DType::kF16 ? 0x7e00 : 0x7fc0);
  if (dtype == DType::kBF16) return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
  // Counts units of the last place of the result, so that nearbyint rounds to even. All subnormals
  // have the same unit.
  const float magnitude = std::fabs(value);
  if (magnitude >= 65520) return sign | 0x7c00;  // halfway to the number after the largest
  const int exponent = std::max(std::ilogb(magnitude), -14);  // of zero it is INT_MIN
  const auto units = static_cast<int>(std::nearbyint(std::ldexp(magnitude, 10 - exponent)));
  // Adding the units also carries correctly into the next exponent and out of the subnormals.
  return static_cast<uint16_t>(sign | ((exponent + 14) * 1024 + units));
}

float HalfValue(uint16_t bits, DType dtype) {
  if (dtype == DType::kBF16) return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
  const int exponent = bits >> 10 & 31, mantissa = bits & 1023;
  const float sign = bits & 0x8000 ? -1.0f : 1.0f;
  if (exponent == 31) {
    return mantissa ? std::numeric_limits<float>::quiet_NaN()
                    : sign * std::numeric_limits<float>::infinity();
  }
  return sign * (exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -24)
                               : std::ldexp(static_cast<float>(1024 + mantissa), exponent - 25));
}

int64_t FloorDivInt(int64_t a, int64_t b) {
  if (b == -1) return static_cast<int64_t>(0 - static_cast<uint64_t>(a));
  int64_t q = a / b;
  return (a % b != 0 && (a < 0) != (b < 0)) ? q - 1 : q;
}

int64_t FloorModInt(int64_t a, int64_t b) {
  if (b == -1) return 0;
  int64_t r = a % b;
  return (r != 0 && (r < 0) != (b < 0)) ? r + b : r;
}

namespace {

// Repeated squaring, which wraps.
uint64_t PowU64(uint64_t base, uint64_t exponent) {
  uint64_t result = 1;
  for (; exponent != 0; exponent >>= 1, base *= base) {
    if (exponent & 1) result *= base;
  }
  return result;
}

// The operators that mean something else for a u64 than for an i64 of the same bits.
std::optional<uint64_t> EvalU64(Op op, uint64_t a, uint64_t b) {
  switch (op) {
    case Op::kDiv:
    case Op::kFloorDiv:
      return b == 0 ? 0 : a / b;
    case Op::kFloorMod:
      return b == 0 ? 0 : a % b;
    case Op::kMin:
      return std::min(a, b);
    case Op::kMax:
      return std::max(a, b);
    case Op::kPow:
      return PowU64(a, b);
    case Op::kLt:
      return a < b;
    case Op::kLe:
      return a <= b;
    case Op::kAbs:
      return a;
    case Op::kSign:
      return a != 0;
    default:
      return std::nullopt;
  }
}

}  // namespace

std::optional<int64_t> EvalInt(Op op, DType dtype, int64_t a, int64_t b) {
  const auto ua = static_cast<uint64_t>(a), ub = static_cast<uint64_t>(b);
  const auto wrap = [&](uint64_t v) { return WrapInt(static_cast<int64_t>(v), dtype); };
  if (dtype == DType::kU64) {
    if (const auto v = EvalU64(op, ua, ub)) return static_cast<int64_t>(*v);
  }
  switch (op) {
    case Op::kAdd:
      return wrap(ua + ub);
    case Op::kSub:
      return wrap(ua - ub);
    case Op::kMul:
      return wrap(ua * ub);
    case Op::kDiv:
      if (b == 0) return 0;
      return wrap(b == -1 ? 0 - ua : static_cast<uint64_t>(a / b));
    case Op::kFloorDiv:
      if (b == 0) return 0;
      return wrap(static_cast<uint64_t>(FloorDivInt(a, b)));
    case Op::kFloorMod:
      if (b == 0) return 0;
      return FloorModInt(a, b);
    case Op::kMin:
      return a < b ? a : b;
    case Op::kMax:
      return a > b ? a : b;
    // Negative exponents truncate like integer division.
    case Op::kPow: {
      if (b < 0) {
        return a == 1 ? 1 : (a == -1 ? (b % 2 ? -1 : 1) : 0);
      }
      return wrap(PowU64(ua, ub));
    }
    case Op::kLt:
      return a < b;
    case Op::kLe:
      return a <= b;
    case Op::kEq:
      return a == b;
    case Op::kNe:
      return a != b;
    case Op::kAnd:
      return a && b;
    case Op::kOr:
      return a || b;
    case Op::kNot:
      return !a;
    case Op::kNeg:
      return wrap(0 - ua);
    case Op::kAbs:
      return a < 0 ? wrap(0 - ua) : a;
    case Op::kSign:
      return (a > 0) - (a < 0);
    default:
      return std::nullopt;
  }
}

namespace {

// Adds half a unit of the 10th bit of the mantissa and cuts the rest, which rounds ties away from
// zero. A carry into the exponent gives the right result, too.
float RoundTf32(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7f800000) == 0x7f800000) return value;  // infinities and NaNs
  return std::bit_cast<float>((bits + 0x1000) & 0xffffe000);
}

template <typename T>
std::optional<T> EvalFloatAs(Op op, T a, T b) {
  switch (op) {
    case Op::kAdd:
      return a + b;
    case Op::kSub:
      return a - b;
    case Op::kMul:
      return a * b;
    case Op::kDiv:
      return a / b;
    case Op::kMin:
      return b < a ? b : a;
    case Op::kMax:
      return a < b ? b : a;
    case Op::kPow:
      return std::pow(a, b);
    case Op::kNeg:
      return -a;
    case Op::kAbs:
      return std::fabs(a);
    case Op::kSign:
      return static_cast<T>((a > 0) - (a < 0));
    case Op::kExp:
      return std::exp(a);
    case Op::kLog:
      return std::log(a);
    case Op::kSqrt:
      return std::sqrt(a);
    case Op::kTanh:
      return std::tanh(a);
    case Op::kErf:
      return std::erf(a);
    case Op::kSin:
      return std::sin(a);
    case Op::kCos:
      return std::cos(a);
    case Op::kTan:
      return std::tan(a);
    case Op::kAsin:
      return std::asin(a);
    case Op::kAcos:
      return std::acos(a);
    case Op::kAtan:
      return std::atan(a);
    case Op::kSinh:
      return std::sinh(a);
    case Op::kCosh:
      return std::cosh(a);
    case Op::kAsinh:
      return std::asinh(a);
    case Op::kAcosh:
      return std::acosh(a);
    case Op::kAtanh:
      return std::atanh(a);
    case Op::kFloor:
      return std::floor(a);
    case Op::kCeil:
      return std::ceil(a);
    case Op::kRound:
      return std::nearbyint(a);
    case Op::kTf32:
      return RoundTf32(static_cast<float>(a));
    default:
      return std::nullopt;
  }
}

}  // namespace

std::optional<double> EvalFloat(Op op, DType dtype, double a, double b) {
  if (dtype == DType::kF64) return EvalFloatAs<double>(op, a, b);
  return EvalFloatAs<float>(op, static_cast<float>(a), static_cast<float>(b));
}

std::optional<bool> EvalFloatTest(Op op, double a, double b) {
  switch (op) {
    case Op::kLt:
      return a < b;
    case Op::kLe:
      return a <= b;
    case Op::kEq:
      return a == b;
    case Op::kNe:
      return a != b;
    case Op::kIsNan:
      return std::isnan(a);
    case Op::kIsInf:
      return std::isinf(a);
    default:
      return std::nullopt;
  }
}

int64_t FloatToInt(double value, DType dtype) {
  if (dtype == DType::kBool) return value != 0;
  if (std::isnan(value)) return 0;
  const int64_t low = LowestInt(dtype), high = HighestInt(dtype);
  const int bits = static_cast<int>(8 * SizeOf(dtype));
  // Both ends are powers of two, so they are exact as doubles.
  if (value >= std::ldexp(1, IsUnsigned(dtype) ? bits : bits - 1)) return high;
  if (value <= static_cast<double>(low)) return low;
  return dtype == DType::kU64 ? static_cast<int64_t>(static_cast<uint64_t>(value))
                              : static_cast<int64_t>(value);
}

double IntToFloat(int64_t value, DType from, DType to) {
  const auto as = [&]<typename T>(T) {
    return from == DType::kU64 ? static_cast<T>(static_cast<uint64_t>(value))
                               : static_cast<T>(value);
  };
  return to == DType::kF64 ? as(double{}) : RoundFloat(as(float{}), to);
}

}  // namespace heddle::ir
