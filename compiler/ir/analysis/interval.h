// Closed intervals of i64 and their arithmetic: the one place that says how an operator maps the
// intervals of its operands to the interval of its result. analyzer.h adds what is known beyond the
// ranges of variables; region.h keeps some variables symbolic.
#pragma once

#include <cstdint>
#include <optional>
#include <unordered_map>

#include "absl/functional/function_ref.h"
#include "compiler/ir/ir.h"

namespace heddle::ir {

struct Interval {
  int64_t min = 0;
  int64_t max = 0;
};
using Ranges = std::unordered_map<const Var*, Interval>;

// The ends of unbounded intervals. Sums with an infinite end are infinite, and overflow gives an
// infinity.
inline constexpr int64_t kMinusInfinity = INT64_MIN;
inline constexpr int64_t kInfinity = INT64_MAX;
inline constexpr Interval kEverything = {kMinusInfinity, kInfinity};

inline bool IsFinite(int64_t v) { return v != kMinusInfinity && v != kInfinity; }
inline bool IsFinite(Interval i) { return IsFinite(i.min) && IsFinite(i.max); }
inline bool Contains(Interval outer, Interval inner) {
  return outer.min <= inner.min && inner.max <= outer.max;
}

// The values of an integer type, or of bool.
Interval OfType(DType dtype);

Interval Scale(Interval i, int64_t factor);
Interval Add(Interval a, Interval b);
// The smallest interval around both.
Interval Hull(Interval a, Interval b);
// Quotients by k > 0.
Interval FloorDiv(Interval a, int64_t k);

// The values of an operator on one or two integers, if nothing overflows (`b` is ignored for one).
// kEverything for an operator without a rule.
Interval OpInterval(Op op, Interval a, Interval b);

// The interval of an integer expression, operator by operator, from those of its variables. Fast,
// and less sharp than Analyzer::Bounds: it sees no relation between operands. nullopt where
// `range_of` gives null, for loads of unknown range, operators of one operand, and what is not finite.
std::optional<Interval> QuickBounds(const Expr& e,
                                    absl::FunctionRef<const Interval*(const Var*)> range_of);

}  // namespace heddle::ir
