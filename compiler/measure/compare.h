// Decides when two results of the same computation count as equal. How far they may differ is
// promised by the kernel that made them (runtime/numerics.h).
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "compiler/ir/ir.h"
#include "compiler/runtime/numerics.h"

namespace heddle {

// The tolerance for numbers that are stored as `dtype`. 16-bit floats that differ within the
// tolerance of f32 may round to neighbours. So a unit in the last place is added, 2^-10 (f16) or
// 2^-7 (bf16) of the number, and for f16 also that of the smallest normal number.
inline runtime::Tolerance Stored(ir::DType dtype, runtime::Tolerance tolerance) {
  if (dtype == ir::DType::kF16) tolerance.relative += 0x1p-10, tolerance.absolute += 0x1p-24;
  if (dtype == ir::DType::kBF16) tolerance.relative += 0x1p-7;
  return tolerance;
}

// Whether two numbers agree. NaN equals NaN, and an infinity equals itself.
inline bool Close(double a, double b,
                  const runtime::Tolerance& tolerance = runtime::kDirectTolerance) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  if (std::isinf(a) || std::isinf(b)) return a == b;
  return std::fabs(a - b) <=
         tolerance.absolute + tolerance.relative * std::fmax(std::fabs(a), std::fabs(b));
}

// Whether two elements of a buffer agree. Integers and bools must be equal, whatever the schedule.
inline bool Same(ir::DType dtype, double a, double b,
                 const runtime::Tolerance& tolerance = runtime::kDirectTolerance) {
  return ir::IsFloat(dtype) ? Close(a, b, Stored(dtype, tolerance)) : a == b;
}

// The largest difference, relative to the largest expected magnitude. Infinite if only one of two
// elements is finite, or if the lengths differ.
template <typename T>
double RelativeError(const std::vector<T>& found, const std::vector<T>& expected) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (found.size() != expected.size()) return kInfinity;
  double scale = 0, difference = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    const double a = found[i], b = expected[i];
    if (std::isnan(a) && std::isnan(b)) continue;
    if (!std::isfinite(a) || !std::isfinite(b)) {
      if (a == b) continue;
      return kInfinity;
    }
    scale = std::max(scale, std::fabs(b));
    difference = std::max(difference, std::fabs(a - b));
  }
  return difference == 0 ? 0 : difference / std::max(scale, 1e-30);
}

}  // namespace heddle
