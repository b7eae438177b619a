#include "compiler/ir/analysis/analyzer.h"

#include <cstdlib>

#include "compiler/ir/analysis/linear.h"
#include "compiler/ir/arithmetic.h"
#include "compiler/ir/visit.h"

namespace heddle::ir {

void Analyzer::Restore(Position position) {
  vars_.resize(position.vars);
  facts_.resize(position.facts);
}

namespace {

// Longer conjunctions are not sharpened, because the effort is quadratic.
constexpr size_t kMaxSharpened = 8;

// Divisors are far smaller in practice. Larger ones could overflow the coefficients of a fact.
constexpr int64_t kMaxFactDivisor = int64_t{1} << 20;

// Bounds combine facts with facts. Schedules make a few; further ones are forgotten, which proves less and nothing wrong.
constexpr size_t kMostFacts = 128;

// Collects the conditions that must all be `holds` if `condition` is `holds`.
void CollectConjuncts(const Expr& condition, bool holds, std::vector<Expr>* conjuncts) {
  if (condition->kind == ExprKind::kOp && condition->op == (holds ? Op::kAnd : Op::kOr)) {
    CollectConjuncts(condition->args[0], holds, conjuncts);
    CollectConjuncts(condition->args[1], holds, conjuncts);
  } else {
    conjuncts->push_back(condition);
  }
}

}  // namespace

void Analyzer::Assume(const Expr& condition, bool holds) {
  const Expr simplified = Simplify(condition);
  std::vector<Expr> conjuncts;
  CollectConjuncts(simplified, holds, &conjuncts);
  // A conjunct says more once the others are known: for x in 2..3, x % 2 > 0 means x > 2.
  std::vector<Expr> sharper;
  for (size_t i = 0;
       1 < conjuncts.size() && conjuncts.size() <= kMaxSharpened && i < conjuncts.size(); ++i) {
    const Position position = Mark();
    for (size_t j = 0; j < conjuncts.size(); ++j) {
      if (j != i) AssumeSimplified(conjuncts[j], holds);
    }
    sharper.push_back(Simplify(conjuncts[i]));
    Restore(position);
  }
  AssumeSimplified(simplified, holds);
  for (size_t i = 0; i < sharper.size(); ++i) {
    if (!StructuralEqual(sharper[i], conjuncts[i])) AssumeSimplified(sharper[i], holds);
  }
}

void Analyzer::AssumeSimplified(const Expr& condition, bool holds) {
  if (condition->kind != ExprKind::kOp) return;
  const auto& args = condition->args;
  switch (condition->op) {
    case Op::kNot:
      return AssumeSimplified(args[0], !holds);
    case Op::kAnd:
    case Op::kOr:
      if (holds != (condition->op == Op::kAnd)) return;
      AssumeSimplified(args[0], holds);
      AssumeSimplified(args[1], holds);
      return;
    case Op::kLt:
    case Op::kLe:
    case Op::kEq:
    case Op::kNe:
      break;
    default:
      return;
  }
  if (args[0]->dtype != DType::kI64) return;
  Linear difference = ToLinear(args[1]);
  AddScaled(difference, ToLinear(args[0]), -1);
  if (condition->op == Op::kLt || condition->op == Op::kLe) {
    // b - a >= 0 or 1; the negation is a - b >= 1 or 0.
    const int64_t strict = condition->op == Op::kLt;
    Linear fact;
    AddScaled(fact, difference, holds ? 1 : -1);
    fact.constant -= holds ? strict : 1 - strict;
    AddFact(std::move(fact));
  } else if (holds == (condition->op == Op::kEq)) {
    Linear opposite;
    AddScaled(opposite, difference, -1);
    AddFact(std::move(difference));
    AddFact(std::move(opposite));
  }
}

void Analyzer::Keep(Linear fact) {
  if (facts_.size() < kMostFacts) facts_.push_back(std::move(fact));
}

void Analyzer::AddFact(Linear fact) {
  if (fact.terms.empty()) return;
  const int64_t g = CommonFactor(fact);
  for (auto& term : fact.terms) term.second /= g;
  fact.constant = FloorDivInt(fact.constant, g);
  const auto& [term, c] = fact.terms[0];
  if (fact.terms.size() == 1 && term->kind == ExprKind::kVar) {  // c is 1 or -1
    const Interval known = RangeOf(term->var.get());
    Interval range = known;
    if (c > 0) range.min = std::max(range.min, -fact.constant);
    if (c < 0) range.max = std::min(range.max, fact.constant);
    // The guard is impossible. What it protects never runs, so any range will do.
    if (range.min > range.max) return;
    if (range.min == known.min && range.max == known.max) return;
    Bind(term->var.get(), range);
    RenewFacts(term->var.get());
    return;
  }
  AddFactsOfDividends(fact);
  Keep(std::move(fact));
}

// With a narrower range, divisions and moduli of the variable simplify, so the known facts are
// added in the simplified form, too. A fact may contain a select whose condition narrows the
// variable again; renewing_ keeps this from nesting.
void Analyzer::RenewFacts(const Var* var) {
  if (renewing_) return;
  renewing_ = true;
  const size_t known = facts_.size();
  for (size_t n = 0; n < known; ++n) {
    const Expr before = FromLinear(facts_[n]);
    if (!UsesVar(before, var)) continue;
    Linear renewed = Lin(before);
    if (renewed.terms.empty() || StructuralEqual(FromLinear(renewed), before)) continue;
    // It stays a fact even if it is about one variable: narrowing ranges again might never end.
    Keep(std::move(renewed));
  }
  renewing_ = false;
}

// k * (x // k) lies in [x - k + 1, x], so a fact about a quotient is also one about its dividend.
void Analyzer::AddFactsOfDividends(const Linear& fact) {
  for (const auto& [quotient, c] : fact.terms) {
    int64_t k = 0;
    if (!IsOp(quotient, Op::kFloorDiv) || !IsConstInt(quotient->args[1], &k)) continue;
    if (k <= 0 || k > kMaxFactDivisor) continue;
    Linear derived;
    AddScaled(derived, fact, k);
    AddTerm(derived, quotient, -c * k);
    AddScaled(derived, ToLinear(quotient->args[0]), c);
    if (c < 0) derived.constant -= c * (k - 1);
    Keep(std::move(derived));
  }
}

bool Analyzer::Proves(const Expr& condition) {
  int64_t value = 0;
  return IsConstInt(Simplify(condition), &value) && value != 0;
}

Expr Analyzer::Simplify(const Expr& e) {
  switch (e->kind) {
    case ExprKind::kInt:
    case ExprKind::kFloat:
      return e;
    case ExprKind::kVar: {
      const Interval range = RangeOf(e->var.get());
      return range.min == range.max ? Int(range.min) : e;
    }
    case ExprKind::kLoad:
    case ExprKind::kCast:
      return SimplifyArgs(e);
    case ExprKind::kOp:
      break;
  }
  if (e->op == Op::kSelect) return SimplifySelect(e);
  if (e->dtype == DType::kI64) return FromLinear(SimplifyToLinear(e));
  if (e->dtype != DType::kBool) return SimplifyArgs(e);
  if (e->op == Op::kAnd || e->op == Op::kOr || e->op == Op::kNot) return SimplifyLogic(e);
  if (e->op >= Op::kLt && e->op <= Op::kNe && e->args[0]->dtype == DType::kI64) {
    return SimplifyCompare(e->op, e->args[0], e->args[1]);
  }
  return SimplifyArgs(e);
}

Expr Analyzer::SimplifyArgs(const Expr& e) {
  return MapChildren(e, [this](const Expr& a) { return Simplify(a); });
}

Expr Analyzer::SimplifySelect(const Expr& e) {
  Expr condition = Simplify(e->args[0]);
  int64_t value = 0;
  if (IsConstInt(condition, &value)) return Simplify(e->args[value ? 1 : 2]);
  const Position position = Mark();
  AssumeSimplified(condition, true);
  Expr then_value = Simplify(e->args[1]);
  Restore(position);
  AssumeSimplified(condition, false);
  Expr else_value = Simplify(e->args[2]);
  Restore(position);
  if (StructuralEqual(then_value, else_value)) return then_value;
  return Select(std::move(condition), std::move(then_value), std::move(else_value));
}

Expr Analyzer::SimplifyLogic(const Expr& e) {
  int64_t value = 0;
  if (e->op == Op::kNot) {
    const Expr& inner = e->args[0];
    if (inner->kind == ExprKind::kOp) {
      const auto& a = inner->args;
      if (inner->op == Op::kNot) return Simplify(a[0]);
      const bool floats = IsFloat(a[0]->dtype);  // not (x < y) holds for NaN where y <= x does not
      if (inner->op == Op::kLt && !floats) return Simplify(Le(a[1], a[0]));
      if (inner->op == Op::kLe && !floats) return Simplify(Lt(a[1], a[0]));
      if (inner->op == Op::kEq) return Simplify(Make(Op::kNe, {a[0], a[1]}));
      if (inner->op == Op::kNe) return Simplify(Make(Op::kEq, {a[0], a[1]}));
      if (inner->op == Op::kAnd || inner->op == Op::kOr) {
        return Simplify(Make(inner->op == Op::kAnd ? Op::kOr : Op::kAnd,
                             {Make(Op::kNot, {a[0]}), Make(Op::kNot, {a[1]})}));
      }
    }
    return SimplifyArgs(e);
  }
  const bool is_and = e->op == Op::kAnd;
  Expr a = Simplify(e->args[0]);
  if (IsConstInt(a, &value)) return (value != 0) == is_and ? Simplify(e->args[1]) : a;
  // The right side is only evaluated if the left one does not decide the result.
  const Position position = Mark();
  AssumeSimplified(a, is_and);
  Expr b = Simplify(e->args[1]);
  Restore(position);
  if (IsConstInt(b, &value)) return (value != 0) == is_and ? a : b;
  if (StructuralEqual(a, b)) return a;
  return Make(e->op, {std::move(a), std::move(b)});
}

Expr Analyzer::SimplifyCompare(Op op, const Expr& a, const Expr& b) {
  Linear difference = Lin(b);
  AddScaled(difference, Lin(a), -1);
  Recombine(difference);
  if (op == Op::kEq || op == Op::kNe) return SimplifyEqual(op, std::move(difference));
  if (op == Op::kLe) difference.constant += 1;
  return SimplifyPositive(std::move(difference));
}

namespace {

// Positive terms of l, or its negative ones with their sign turned; without the constant.
Linear Side(const Linear& l, bool positive) {
  Linear side;
  for (const auto& [term, c] : l.terms) {
    if ((c > 0) == positive) side.terms.emplace_back(term, positive ? c : -c);
  }
  return side;
}

}  // namespace

// difference > 0, as "left < right" without negative coefficients.
Expr Analyzer::SimplifyPositive(Linear d) {
  const Interval bounds = LinearBounds(d);
  if (bounds.min >= 1) return Bool(true);
  if (bounds.max <= 0) return Bool(false);
  // g*t + c >= 1  <=>  t + floor((c - 1) / g) >= 0
  const int64_t g = CommonFactor(d);
  for (auto& term : d.terms) term.second /= g;
  d.constant = FloorDivInt(d.constant - 1, g) + 1;
  int64_t k = 0;
  if (d.terms.size() == 1 && IsOp(d.terms[0].first, Op::kFloorDiv) &&
      IsConstInt(d.terms[0].first->args[1], &k) && k > 0) {
    // x//k + c > 0  <=>  x + c*k > k - 1;   c - x//k > 0  <=>  c*k - x > 0
    Linear x = Lin(d.terms[0].first->args[0]);
    Linear undivided;
    AddScaled(undivided, x, d.terms[0].second);
    undivided.constant += d.constant * k - (d.terms[0].second > 0 ? k - 1 : 0);
    return SimplifyPositive(std::move(undivided));
  }
  SortTerms(d);
  Linear left = Side(d, false), right = Side(d, true);
  if (left.terms.empty() || (d.constant < 0 && !right.terms.empty())) {
    left.constant = -d.constant;
  } else {
    right.constant = d.constant;
  }
  return Lt(FromLinear(left), FromLinear(right));
}

Expr Analyzer::SimplifyEqual(Op op, Linear d) {
  const bool is_eq = op == Op::kEq;
  const Interval bounds = LinearBounds(d);
  if (bounds.min > 0 || bounds.max < 0) return Bool(!is_eq);
  if (bounds.min == 0 && bounds.max == 0) return Bool(is_eq);
  const int64_t g = CommonFactor(d);
  if (d.constant % g != 0) return Bool(!is_eq);
  SortTerms(d);
  const int64_t unit = d.terms[0].second > 0 ? g : -g;
  for (auto& term : d.terms) term.second = FloorDivInt(term.second, unit);
  d.constant = FloorDivInt(d.constant, unit);
  Linear left = Side(d, true), right = Side(d, false);
  right.constant = -d.constant;
  return Make(op, {FromLinear(left), FromLinear(right)});
}

Expr Simplify(const Expr& e, const Ranges& ranges) { return Analyzer(&ranges).Simplify(e); }

}  // namespace heddle::ir
