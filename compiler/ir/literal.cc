#include "compiler/ir/literal.h"

#include <charconv>

namespace heddle::ir {

namespace {

absl::StatusOr<Expr> IntLiteral(std::string_view text, DType dtype, bool negative) {
  constexpr uint64_t lowest = uint64_t{1} << 63;
  const uint64_t highest = dtype == DType::kU64 ? ~uint64_t{0} : lowest - 1;
  uint64_t magnitude = 0;
  auto [p, error] = std::from_chars(text.data(), text.data() + text.size(), magnitude);
  if (error != std::errc() || p != text.data() + text.size() ||
      magnitude > (negative ? lowest : highest)) {
    return absl::InvalidArgumentError("the integer does not fit");
  }
  const auto value = static_cast<int64_t>(negative ? 0 - magnitude : magnitude);
  Expr e = Int(value, dtype);
  if (e->int_value != value || (negative && value != 0 && IsUnsigned(dtype)))
    return absl::InvalidArgumentError("the integer does not fit its type");
  return e;
}

absl::StatusOr<Expr> FloatLiteral(std::string_view text, DType dtype, bool negative) {
  // Each width is read at its own precision: via double, an f32 would be rounded twice.
  float f32 = 0;
  double f64 = 0;
  const char* end = text.data() + text.size();
  auto [p, error] = dtype == DType::kF64 ? std::from_chars(text.data(), end, f64)
                                         : std::from_chars(text.data(), end, f32);
  if (error != std::errc() || p != end)
    return absl::InvalidArgumentError("the number is malformed or out of range");
  const double value = dtype == DType::kF64 ? f64 : static_cast<double>(f32);
  return Float(negative ? -value : value, dtype);
}

}  // namespace

absl::StatusOr<Expr> Literal(std::string_view text, bool negative) {
  const size_t suffix = text.find_first_of("iufb");
  DType dtype = text.find_first_of(".e") == text.npos ? DType::kI64 : DType::kF32;
  if (suffix != text.npos) {
    const auto named = DTypeFromName(text.substr(suffix));
    if (!named || IsFloat(*named) != IsFloat(dtype))
      return absl::InvalidArgumentError("the literal's type is wrong");
    dtype = *named;
    text = text.substr(0, suffix);
  }
  return IsFloat(dtype) ? FloatLiteral(text, dtype, negative) : IntLiteral(text, dtype, negative);
}

}  // namespace heddle::ir
