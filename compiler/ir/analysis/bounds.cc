// Intervals sharpened by facts: bounds that plain interval arithmetic (interval.h) does not find.
#include <algorithm>
#include <cstdlib>

#include "compiler/ir/analysis/analyzer.h"
#include "compiler/ir/analysis/linear.h"
#include "compiler/ir/arithmetic.h"

namespace heddle::ir {
namespace {

// How deep sharper reasoning may nest. Two facts combined (a lower and an upper tail) decide every
// guard that a schedule makes, and each level multiplies the time.
constexpr int kMaxEffort = 2;

class Deeper {
 public:
  explicit Deeper(int& effort) : effort_(effort) { ++effort_; }
  ~Deeper() { --effort_; }

 private:
  int& effort_;
};

}  // namespace

Interval Analyzer::RangeOf(const Var* var) const {
  for (auto it = vars_.rbegin(); it != vars_.rend(); ++it) {
    if (it->first == var) return it->second;
  }
  if (base_ != nullptr) {
    if (auto it = base_->find(var); it != base_->end()) return it->second;
  }
  return kEverything;
}

Interval Analyzer::TreeBounds(const Expr& e) {
  if (e->dtype == DType::kU64) return kEverything;  // it may exceed what an interval can hold
  switch (e->kind) {
    case ExprKind::kInt:
      return {e->int_value, e->int_value};
    case ExprKind::kVar:
      return RangeOf(e->var.get());
    case ExprKind::kCast: {
      const Interval type = OfType(e->dtype);
      if (IsFloat(e->args[0]->dtype)) return type;
      if (e->dtype == DType::kBool) return type;
      const Interval operand = TreeBounds(e->args[0]);
      return Contains(type, operand) ? operand : type;
    }
    case ExprKind::kOp: {
      if (IsFloat(e->dtype)) return kEverything;
      // If the result may wrap around in a narrow type, only the range of the type is known.
      const Interval type = OfType(e->dtype), bounds = OpBounds(e);
      return Contains(type, bounds) ? bounds : type;
    }
    case ExprKind::kLoad:
      return e->buffer->below > 0 ? Interval{0, e->buffer->below - 1} : OfType(e->dtype);
    case ExprKind::kFloat:
      return OfType(e->dtype);
  }
  return kEverything;
}

// A guard on a quotient is a fact about its dividend, so facts tighten the bounds of dividends.
Interval Analyzer::DividendBounds(const Expr& e) {
  Interval bounds = TreeBounds(e);
  // Facts contain quotients of their own, so this recurses. Two levels suffice for the quotients of
  // quotients that schedules make.
  if (facts_.empty() || e->dtype != DType::kI64 || dividend_depth_ >= 2) return bounds;
  ++dividend_depth_;
  const Interval linear = LinearBounds(ToLinear(e));
  --dividend_depth_;
  return {std::max(bounds.min, linear.min), std::min(bounds.max, linear.max)};
}

Interval Analyzer::OpBounds(const Expr& e) {
  if (e->op == Op::kSelect) return SelectBounds(e);
  if (e->dtype == DType::kBool) return OfType(DType::kBool);
  const bool divides = e->op == Op::kFloorDiv || e->op == Op::kFloorMod;
  const Interval a = divides ? DividendBounds(e->args[0]) : TreeBounds(e->args[0]);
  return OpInterval(e->op, a, e->args.size() > 1 ? TreeBounds(e->args[1]) : a);
}

Interval Analyzer::SelectBounds(const Expr& e) {
  if (effort_ >= kMaxEffort) return Hull(TreeBounds(e->args[1]), TreeBounds(e->args[2]));
  const Deeper deeper(effort_);
  const Position position = Mark();
  Interval branch[2];
  for (int i = 0; i < 2; ++i) {
    AssumeSimplified(e->args[0], i == 0);
    branch[i] =
        e->dtype == DType::kI64 ? LinearBounds(Lin(e->args[i + 1])) : TreeBounds(e->args[i + 1]);
    Restore(position);
  }
  return Hull(branch[0], branch[1]);
}

Interval Analyzer::LinearBounds(const Linear& l) {
  Interval bounds = {l.constant, l.constant};
  for (const auto& [term, c] : l.terms) bounds = Add(bounds, Scale(TreeBounds(term), c));
  if (effort_ >= kMaxEffort || l.terms.empty()) return bounds;
  const Deeper deeper(effort_);
  if (!facts_.empty()) {
    TightenByFacts(l, bounds);
    TightenByQuotients(l, bounds);
  }
  TightenByMinMax(l, bounds);
  return bounds;
}

// For a fact f >= 0 and k > 0: l <= l + k*f and l >= l - k*f. Tries the facts that cancel a term.
void Analyzer::TightenByFacts(const Linear& l, Interval& bounds) {
  for (size_t n = 0; n < facts_.size(); ++n) {
    const Linear& fact = facts_[n];
    int64_t tried_up = 0, tried_down = 0;
    for (const auto& [term, c] : fact.terms) {
      const int at = FindTerm(l, term);
      if (at < 0 || FloorModInt(l.terms[at].second, c) != 0) continue;
      const int64_t k = FloorDivInt(l.terms[at].second, c);
      if (k == tried_up || k == tried_down) continue;
      (k < 0 ? tried_up : tried_down) = k;
      Linear combined = l;
      AddScaled(combined, fact, -k);
      const Interval other = LinearBounds(combined);
      if (k < 0) bounds.max = std::min(bounds.max, other.max);
      if (k > 0) bounds.min = std::max(bounds.min, other.min);
    }
  }
}

// c*w + c*(x // k) is c*((x + k*w) // k). Simplification has moved multiples of k out of the
// quotient, but a fact may be about the whole dividend.
void Analyzer::TightenByQuotients(const Linear& l, Interval& bounds) {
  if (l.terms.size() < 2) return;
  for (const auto& [quotient, c] : l.terms) {
    int64_t k = 0;
    if (!IsOp(quotient, Op::kFloorDiv) || !IsConstInt(quotient->args[1], &k) || k <= 0) continue;
    Linear dividend = ToLinear(quotient->args[0]);
    bool multiples = true;
    for (const auto& [term, factor] : l.terms) {
      if (term == quotient) continue;
      const int64_t times = FloorDivInt(factor, c);
      multiples &= FloorModInt(factor, c) == 0 && std::abs(times) <= INT32_MAX / k;
      if (multiples) AddTerm(dividend, term, times * k);
    }
    if (!multiples) continue;
    const Interval whole = FloorDiv(LinearBounds(dividend), k);
    const Interval other = Add(Scale(whole, c), {l.constant, l.constant});
    bounds = {std::max(bounds.min, other.min), std::min(bounds.max, other.max)};
  }
}

// min(x, y) <= x cancels against an x elsewhere in the sum, which plain intervals cannot see.
void Analyzer::TightenByMinMax(const Linear& l, Interval& bounds) {
  if (l.terms.size() < 2) return;
  for (const auto& [term, c] : l.terms) {
    if (!IsOp(term, Op::kMin) && !IsOp(term, Op::kMax)) continue;
    Interval with[2];
    for (int i = 0; i < 2; ++i) {
      Linear replaced = l;
      AddTerm(replaced, term, -c);
      AddScaled(replaced, ToLinear(term->args[i]), c);
      with[i] = LinearBounds(replaced);
    }
    const Interval hull = Hull(with[0], with[1]);
    bounds = {std::max(bounds.min, hull.min), std::min(bounds.max, hull.max)};
    if ((c > 0) == IsOp(term, Op::kMin)) {
      bounds.max = std::min({bounds.max, with[0].max, with[1].max});
    } else {
      bounds.min = std::max({bounds.min, with[0].min, with[1].min});
    }
    return;
  }
}

std::optional<Interval> Analyzer::Bounds(const Expr& e) {
  if (IsFloat(e->dtype)) return std::nullopt;
  Interval bounds = TreeBounds(e);
  if (e->dtype == DType::kI64 && bounds.min != bounds.max) {
    const Interval linear = LinearBounds(Lin(e));
    bounds = {std::max(bounds.min, linear.min), std::min(bounds.max, linear.max)};
  }
  if (!IsFinite(bounds) || bounds.min > bounds.max) return std::nullopt;
  return bounds;
}

bool Analyzer::IsWithin(const Expr& e, int64_t low, int64_t high) {
  const Interval tree = TreeBounds(e);
  if (low <= tree.min && tree.max < high) return true;
  if (e->dtype != DType::kI64) return false;
  const Interval linear = LinearBounds(Lin(e));
  return low <= std::max(tree.min, linear.min) && std::min(tree.max, linear.max) < high;
}

// What FindOverflow knows of a part of an expression.
struct Analyzer::Part {
  Interval range;
  bool data = false;  // it depends on loaded or floating-point numbers, and has no finite range
};

Analyzer::Part Analyzer::WalkForOverflow(const Expr& e, Expr* overflow) const {
  const Interval type = OfType(e->dtype);
  switch (e->kind) {
    case ExprKind::kInt:
      return {e->dtype == DType::kU64 ? type : Interval{e->int_value, e->int_value}};
    case ExprKind::kVar:
      return {RangeOf(e->var.get())};
    case ExprKind::kFloat:
      return {kEverything, true};
    case ExprKind::kLoad:
      if (e->buffer->below > 0) return {{0, e->buffer->below - 1}};
      return {kEverything, true};
    case ExprKind::kCast: {
      const Part from = WalkForOverflow(e->args[0], overflow);
      if (from.data || e->dtype == DType::kU64) return {kEverything, from.data};
      return {Contains(type, from.range) ? from.range : type};
    }
    case ExprKind::kOp:
      break;
  }
  Part operands[3];
  for (size_t i = 0; i < e->args.size(); ++i) operands[i] = WalkForOverflow(e->args[i], overflow);
  if (e->dtype == DType::kBool) return {type};
  if (IsFloat(e->dtype)) return {kEverything, true};
  // The two operands that the result is made of: of a select, its branches.
  const Part &a = operands[e->args.size() == 3 ? 1 : 0], &b = operands[e->args.size() - 1];
  Part result{e->op == Op::kSelect ? Hull(a.range, b.range) : OpInterval(e->op, a.range, b.range),
              a.data || b.data};
  if (e->dtype != DType::kI64) {  // it wraps around in its type
    if (!result.data && !Contains(type, result.range)) result.range = type;
    return result;
  }
  if (IsFinite(result.range)) return {result.range};
  const bool may_grow = e->op == Op::kAdd || e->op == Op::kSub || e->op == Op::kMul ||
                        e->op == Op::kNeg || e->op == Op::kAbs || e->op == Op::kPow;
  if (!result.data && may_grow && *overflow == nullptr) *overflow = e;
  return result;
}

Expr Analyzer::FindOverflow(const Expr& e) const {
  Expr overflow;
  WalkForOverflow(e, &overflow);
  return overflow;
}

std::optional<Interval> Bounds(const Expr& e, const Ranges& ranges) {
  return Analyzer(&ranges).Bounds(e);
}

}  // namespace heddle::ir
