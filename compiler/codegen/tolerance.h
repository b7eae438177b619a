// The one place that says when two results of the same computation count as equal.
#pragma once

#include <cmath>

#include "compiler/ir/ir.h"

namespace heddle::codegen {

// |a - b| <= atol + rtol * max(|a|, |b|).
//
// Schedules reorder sums and contract multiply-adds. Summing K terms of similar size in single
// precision in another order moves the result by about sqrt(K) ulps of the largest partial sum; K
// is at most some 10^4 here, which makes 1e-5: the relative 1e-4 leaves an order to spare, for a
// single operator and, whose errors partly cancel, for a whole model. The absolute part covers sums
// that cancel: random inputs in [-1, 1] give partial sums of order sqrt(K), whose rounding error
// does not shrink with the result.
inline constexpr double kOperatorRelative = 1e-4;
inline constexpr double kOperatorAbsolute = 1e-4;
inline constexpr double kModelRelative = 1e-4;

inline bool Close(double a, double b, double rtol = kOperatorRelative,
                  double atol = kOperatorAbsolute) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  if (std::isinf(a) || std::isinf(b)) return a == b;
  return std::fabs(a - b) <= atol + rtol * std::fmax(std::fabs(a), std::fabs(b));
}

// Elements of one buffer: integers and bools are exact, whatever the schedule.
inline bool Same(ir::DType dtype, double a, double b) {
  return ir::IsFloat(dtype) ? Close(a, b) : a == b;
}

}  // namespace heddle::codegen
