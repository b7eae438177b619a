#include "compiler/ir/analysis/region.h"

#include <algorithm>
#include <cstdlib>
#include <numeric>

#include "compiler/ir/analysis/linear.h"
#include "compiler/ir/arithmetic.h"

namespace heddle::ir {

namespace {

SymbolicInterval ScaleInterval(SymbolicInterval value, int64_t factor) {
  if (factor == 0) return {};
  for (auto& term : value.terms) term.second *= factor;
  value.lo *= factor;
  value.hi *= factor;
  value.step *= std::abs(factor);
  if (factor < 0) std::swap(value.lo, value.hi);
  return value;
}

SymbolicInterval AddIntervals(SymbolicInterval a, const SymbolicInterval& b) {
  for (const auto& [term, coefficient] : b.terms) AddTerm(a.terms, term, coefficient);
  // Two loops reach every value between their ends if one fills the gaps of the other.
  if (b.Width() > 0 && a.Width() == 0) {
    a.exact = b.exact;
    a.step = b.step;
  } else if (b.Width() > 0) {
    const bool filled =
        (a.step == 1 && b.step <= a.Width() + 1) || (b.step == 1 && a.step <= b.Width() + 1);
    a.exact = a.exact && b.exact && filled;
    a.step = 1;
  }
  a.lo += b.lo;
  a.hi += b.hi;
  return a;
}

bool SameTerms(const SymbolicInterval& a, const SymbolicInterval& b) {
  return AddIntervals(a, ScaleInterval(b, -1)).terms.empty();
}

// Moves the terms divisible by c out of `value` and returns their quotient.
SymbolicInterval TakeMultiples(SymbolicInterval& value, int64_t c) {
  SymbolicInterval multiples;
  Terms rest;
  for (const auto& [term, coefficient] : value.terms) {
    if (coefficient % c == 0) {
      multiples.terms.emplace_back(term, coefficient / c);
    } else {
      rest.emplace_back(term, coefficient);
    }
  }
  value.terms = std::move(rest);
  return multiples;
}

int64_t CommonDivisor(const SymbolicInterval& value, int64_t c) {
  int64_t g = c;
  for (const auto& term : value.terms) g = std::gcd(g, term.second);
  return g;
}

// The terms plus the largest multiple of g up to lo, as one expression. *offset is the rest of lo.
Expr StandingPart(const SymbolicInterval& value, int64_t g, int64_t* offset) {
  *offset = FloorModInt(value.lo, g);
  SymbolicInterval standing = value;
  standing.lo = standing.hi = value.lo - *offset;
  return standing.Base();
}

SymbolicInterval Divide(SymbolicInterval x, int64_t c) {
  SymbolicInterval result = TakeMultiples(x, c);
  if (x.IsConstant()) {
    result.lo = FloorDivInt(x.lo, c);
    result.hi = FloorDivInt(x.hi, c);
    result.exact = x.IsDense();
    return result;
  }
  // The standing part is a multiple of g, which divides c. So an offset below g cannot cross a
  // multiple of c.
  int64_t g = CommonDivisor(x, c);
  int64_t offset = 0;
  Expr standing = StandingPart(x, g, &offset);
  AddTerm(result.terms, FloorDiv(standing, Int(c)), 1);
  int64_t reach = offset + (x.hi - x.lo);
  result.hi = reach < g ? 0 : FloorDivInt(reach - g, c) + 1;
  result.exact = false;
  return result;
}

SymbolicInterval Modulo(SymbolicInterval x, int64_t c) {
  TakeMultiples(x, c);
  SymbolicInterval result;
  if (x.IsConstant()) {
    if (FloorDivInt(x.lo, c) == FloorDivInt(x.hi, c)) {
      result.lo = FloorModInt(x.lo, c);
      result.hi = FloorModInt(x.hi, c);
      result.exact = x.exact;
      result.step = x.step;
    } else {
      result.hi = c - 1;
      result.exact = x.IsDense() && x.Width() >= c - 1;
    }
    return result;
  }
  int64_t g = CommonDivisor(x, c);
  int64_t offset = 0;
  Expr standing = StandingPart(x, g, &offset);
  int64_t reach = offset + (x.hi - x.lo);
  if (reach >= g) {
    result.hi = c - 1;
    result.exact = false;
    return result;
  }
  result.exact = x.exact;
  result.step = x.step;
  AddTerm(result.terms, FloorMod(standing, Int(c)), 1);
  result.lo = offset;
  result.hi = reach;
  return result;
}

bool AnyRunning(const Expr& e, const RunningLoops& running) {
  if (e->kind == ExprKind::kVar) return running.count(e->var.get()) > 0;
  return std::any_of(e->args.begin(), e->args.end(),
                     [&](const Expr& arg) { return AnyRunning(arg, running); });
}

std::optional<SymbolicInterval> Opaque(const Expr& e, const RunningLoops& running) {
  if (AnyRunning(e, running) || e->kind == ExprKind::kLoad) return std::nullopt;
  SymbolicInterval value;
  value.terms.emplace_back(e, 1);
  return value;
}

std::optional<SymbolicInterval> ReachOfMinMax(const SymbolicInterval& a, const SymbolicInterval& b,
                                              bool is_min) {
  if (!SameTerms(a, b)) return std::nullopt;
  SymbolicInterval value = a;
  value.lo = is_min ? std::min(a.lo, b.lo) : std::max(a.lo, b.lo);
  value.hi = is_min ? std::min(a.hi, b.hi) : std::max(a.hi, b.hi);
  value.exact = false;
  return value;
}

std::optional<SymbolicInterval> ReachOfOp(const Expr& e, const RunningLoops& running) {
  if (e->op == Op::kSelect) {
    auto a = ReachOf(e->args[1], running);
    auto b = ReachOf(e->args[2], running);
    return a && b ? Union(*a, *b) : std::nullopt;
  }
  if (e->args.size() != 2) return Opaque(e, running);
  auto a = ReachOf(e->args[0], running);
  auto b = ReachOf(e->args[1], running);
  if (!a || !b) return std::nullopt;
  const bool b_constant = b->IsConstant() && b->lo == b->hi;
  switch (e->op) {
    case Op::kAdd:
      return AddIntervals(*a, *b);
    case Op::kSub:
      return AddIntervals(*a, ScaleInterval(*b, -1));
    case Op::kMul:
      if (b_constant) return ScaleInterval(*a, b->lo);
      if (a->IsConstant() && a->lo == a->hi) return ScaleInterval(*b, a->lo);
      break;
    case Op::kFloorDiv:
      if (b_constant && b->lo > 0) return Divide(*a, b->lo);
      break;
    case Op::kFloorMod:
      if (b_constant && b->lo > 0) return Modulo(*a, b->lo);
      break;
    case Op::kMin:
    case Op::kMax:
      if (auto value = ReachOfMinMax(*a, *b, e->op == Op::kMin)) return value;
      break;
    default:
      break;
  }
  return Opaque(e, running);
}

}  // namespace

Expr SymbolicInterval::Base() const {
  Expr sum;
  for (const auto& [term, coefficient] : terms) {
    Expr part = coefficient == 1 ? term : term * Int(coefficient);
    sum = sum ? sum + part : part;
  }
  if (!sum) return Int(lo);
  if (lo == 0) return sum;
  return lo < 0 ? sum - Int(-lo) : sum + Int(lo);
}

std::optional<SymbolicInterval> ReachOf(const Expr& e, const RunningLoops& running) {
  SymbolicInterval value;
  switch (e->kind) {
    case ExprKind::kInt:
      value.lo = value.hi = e->int_value;
      return value;
    case ExprKind::kVar: {
      auto it = running.find(e->var.get());
      if (it == running.end()) {
        value.terms.emplace_back(e, 1);
      } else {
        value.hi = it->second - 1;
      }
      return value;
    }
    case ExprKind::kOp:
      return ReachOfOp(e, running);
    default:
      return Opaque(e, running);
  }
}

std::optional<SymbolicInterval> Union(const SymbolicInterval& a, const SymbolicInterval& b) {
  if (!SameTerms(a, b)) return std::nullopt;
  SymbolicInterval value = a;
  value.exact = a.exact && b.exact && a.step == b.step && a.lo == b.lo && a.hi == b.hi;
  value.lo = std::min(a.lo, b.lo);
  value.hi = std::max(a.hi, b.hi);
  return value;
}

}  // namespace heddle::ir
