#include "compiler/ir/analysis/interval.h"

#include <algorithm>

#include "compiler/ir/arithmetic.h"

namespace heddle::ir {
namespace {

using Wide = __int128;

int64_t Clamp(Wide v) {
  return v <= kMinusInfinity ? kMinusInfinity
                             : (v >= kInfinity ? kInfinity : static_cast<int64_t>(v));
}

int64_t ScaleEnd(int64_t v, int64_t factor) {
  if (factor == 0) return 0;
  if (!IsFinite(v)) return (v > 0) == (factor > 0) ? kInfinity : kMinusInfinity;
  int64_t product;
  if (!__builtin_mul_overflow(v, factor, &product)) return product;
  return (v > 0) == (factor > 0) ? kInfinity : kMinusInfinity;
}

// The sum of two finite ends; overflow gives an infinity.
int64_t AddEnds(int64_t a, int64_t b) {
  int64_t sum;
  if (!__builtin_add_overflow(a, b, &sum)) return sum;
  return a > 0 ? kInfinity : kMinusInfinity;
}

Interval Multiply(Interval a, Interval b) {
  if (a.min == a.max) return Scale(b, a.min);
  if (b.min == b.max) return Scale(a, b.min);
  if (!IsFinite(a) || !IsFinite(b))
    return a.min >= 0 && b.min >= 0 ? Interval{Clamp(Wide{a.min} * b.min), kInfinity} : kEverything;
  const Wide p[] = {Wide{a.min} * b.min, Wide{a.min} * b.max, Wide{a.max} * b.min,
                    Wide{a.max} * b.max};
  return {Clamp(*std::min_element(p, p + 4)), Clamp(*std::max_element(p, p + 4))};
}

Interval FloorModInterval(Interval a, Interval b) {
  if (b.min <= 0 || !IsFinite(b.max)) return kEverything;
  const int64_t k = b.max;
  if (b.min == k && IsFinite(a) && FloorDivInt(a.min, k) == FloorDivInt(a.max, k))
    return {FloorModInt(a.min, k), FloorModInt(a.max, k)};
  return {0, k - 1};
}

Interval Abs(Interval a) {
  const Interval negative = Scale(a, -1);
  if (a.min >= 0) return a;
  return a.max <= 0 ? negative : Interval{0, std::max(a.max, negative.max)};
}

bool IsPositiveConstant(Interval i) { return i.min == i.max && i.min > 0; }

}  // namespace

Interval OfType(DType dtype) {
  if (IsFloat(dtype) || SizeOf(dtype) == 8) return kEverything;
  return {LowestInt(dtype), HighestInt(dtype)};
}

Interval Scale(Interval i, int64_t factor) {
  if (factor >= 0) return {ScaleEnd(i.min, factor), ScaleEnd(i.max, factor)};
  return {ScaleEnd(i.max, factor), ScaleEnd(i.min, factor)};
}

Interval Add(Interval a, Interval b) {
  Interval sum = kEverything;
  if (IsFinite(a.min) && IsFinite(b.min)) sum.min = AddEnds(a.min, b.min);
  if (IsFinite(a.max) && IsFinite(b.max)) sum.max = AddEnds(a.max, b.max);
  return sum;
}

Interval Hull(Interval a, Interval b) { return {std::min(a.min, b.min), std::max(a.max, b.max)}; }

Interval FloorDiv(Interval a, int64_t k) {
  return {IsFinite(a.min) ? FloorDivInt(a.min, k) : a.min,
          IsFinite(a.max) ? FloorDivInt(a.max, k) : a.max};
}

Interval OpInterval(Op op, Interval a, Interval b) {
  switch (op) {
    case Op::kAdd:
      return Add(a, b);
    case Op::kSub:
      return Add(a, Scale(b, -1));
    case Op::kMul:
      return Multiply(a, b);
    case Op::kNeg:
      return Scale(a, -1);
    case Op::kFloorDiv:
      return IsPositiveConstant(b) ? FloorDiv(a, b.min) : kEverything;
    case Op::kFloorMod:
      return FloorModInterval(a, b);
    case Op::kDiv:  // truncates
      if (!IsPositiveConstant(b)) return kEverything;
      return {IsFinite(a.min) ? a.min / b.min : a.min, IsFinite(a.max) ? a.max / b.min : a.max};
    case Op::kMin:
      return {std::min(a.min, b.min), std::min(a.max, b.max)};
    case Op::kMax:
      return {std::max(a.min, b.min), std::max(a.max, b.max)};
    case Op::kAbs:
      return Abs(a);
    case Op::kSign:
      return {a.min > 0 ? 1 : (a.min == 0 ? 0 : -1), a.max < 0 ? -1 : (a.max == 0 ? 0 : 1)};
    default:
      return kEverything;
  }
}

namespace {

// Intervals in Evaluate are either finite or kEverything, so one end tells which.
bool IsUnknown(Interval i) { return i.min == kMinusInfinity; }

// QuickBounds with kEverything instead of nullopt, so that a result fits into registers. A search
// evaluates millions of expressions, mostly sums of bounded intervals and their products with
// constants. These are computed here directly; OpInterval handles all other operators.
Interval Evaluate(const ExprNode& e, absl::FunctionRef<const Interval*(const Var*)> range_of) {
  switch (e.kind) {
    case ExprKind::kInt:
      return {e.int_value, e.int_value};
    case ExprKind::kVar: {
      const Interval* range = range_of(e.var.get());
      return range == nullptr ? kEverything : *range;
    }
    case ExprKind::kCast:
      return Evaluate(*e.args[0], range_of);
    case ExprKind::kLoad:
      return e.buffer->below > 0 ? Interval{0, e.buffer->below - 1} : kEverything;
    case ExprKind::kFloat:
      return kEverything;
    case ExprKind::kOp:
      break;
  }
  const size_t n = e.args.size();
  if (n < 2) return kEverything;
  const auto operand = [&](const ExprNode& arg) {
    return arg.kind == ExprKind::kInt ? Interval{arg.int_value, arg.int_value}
                                      : Evaluate(arg, range_of);
  };
  const Interval a = operand(*e.args[n - 2]);
  if (IsUnknown(a)) return kEverything;
  const Interval b = operand(*e.args[n - 1]);
  if (IsUnknown(b)) return kEverything;
  Interval sum, product;
  if (e.op == Op::kMul && b.min == b.max && b.min > 0 &&
      !__builtin_mul_overflow(a.min, b.min, &product.min) &&
      !__builtin_mul_overflow(a.max, b.min, &product.max))
    return product;
  if (e.op == Op::kAdd && !__builtin_add_overflow(a.min, b.min, &sum.min) &&
      !__builtin_add_overflow(a.max, b.max, &sum.max))
    return sum;
  const Interval bounds = e.op == Op::kSelect ? Hull(a, b) : OpInterval(e.op, a, b);
  return IsFinite(bounds) ? bounds : kEverything;
}

}  // namespace

std::optional<Interval> QuickBounds(const Expr& e,
                                    absl::FunctionRef<const Interval*(const Var*)> range_of) {
  const Interval bounds = Evaluate(*e, range_of);
  return IsFinite(bounds) ? std::optional(bounds) : std::nullopt;
}

}  // namespace heddle::ir
