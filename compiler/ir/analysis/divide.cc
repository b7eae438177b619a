// Quotients and remainders of linear forms by constants.
#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

#include "compiler/ir/analysis/analyzer.h"
#include "compiler/ir/analysis/linear.h"
#include "compiler/ir/arithmetic.h"

namespace heddle::ir {

namespace {

// Whether `e` is x // K or x % K with a positive constant K.
bool IsDivMod(const Expr& e, Op op, int64_t* divisor) {
  return IsOp(e, op) && IsConstInt(e->args[1], divisor) && *divisor > 0;
}

// rest = factor * multiple + small, with small in [0, factor).
struct Factored {
  int64_t factor;
  Linear multiple, small;
};

// Splits by the first factor that a coefficient shares with the divisor and for which the bounds of
// the small part lie within one multiple of the factor.
template <typename Bounds>
std::optional<Factored> ByCommonFactor(const Linear& rest, int64_t divisor,
                                       const Bounds& bounds_of) {
  int64_t tried = 0;
  for (const auto& candidate : rest.terms) {
    const int64_t factor = std::gcd(std::abs(candidate.second), divisor);
    if (factor <= 1 || factor == tried) continue;
    tried = factor;
    Factored found{factor, {}, {}};
    for (const auto& [term, c] : rest.terms) {
      if (c % factor == 0) {
        found.multiple.terms.emplace_back(term, c / factor);
      } else {
        found.small.terms.emplace_back(term, c);
      }
    }
    found.multiple.constant = FloorDivInt(rest.constant, factor);
    found.small.constant = FloorModInt(rest.constant, factor);
    const Interval bounds = bounds_of(found.small);
    if (bounds.min == INT64_MIN || bounds.max == INT64_MAX) continue;
    const int64_t shift = FloorDivInt(bounds.min, factor);
    if (shift != FloorDivInt(bounds.max, factor)) continue;
    found.multiple.constant += shift;
    found.small.constant -= shift * factor;
    return found;
  }
  return std::nullopt;
}

}  // namespace

// rest // divisor = multiple // (divisor / factor).
bool Analyzer::DivByCommonFactor(const Linear& rest, int64_t divisor, Linear& quotient) {
  auto found = ByCommonFactor(rest, divisor, [&](const Linear& l) { return LinearBounds(l); });
  if (!found) return false;
  quotient = DivBy(std::move(found->multiple), divisor / found->factor);
  return true;
}

Linear Analyzer::DivBy(Linear l, int64_t divisor) {
  if (divisor == 1) return l;
  Linear whole, rest;
  whole.constant = FloorDivInt(l.constant, divisor);
  rest.constant = FloorModInt(l.constant, divisor);
  for (const auto& [term, c] : l.terms) {
    if (c / divisor != 0) whole.terms.emplace_back(term, c / divisor);
    if (c % divisor != 0) rest.terms.emplace_back(term, c % divisor);
  }
  const Interval bounds = LinearBounds(rest);
  if (bounds.min != INT64_MIN && bounds.max != INT64_MAX) {
    const int64_t quotient = FloorDivInt(bounds.min, divisor);
    if (quotient == FloorDivInt(bounds.max, divisor)) {
      whole.constant += quotient;
      return whole;
    }
  }
  Linear quotient;
  int64_t inner = 0;
  if (DivByCommonFactor(rest, divisor, quotient)) {
    AddScaled(whole, quotient, 1);
    return whole;
  }
  if (rest.terms.size() == 1 && rest.terms[0].second == 1) {
    const Expr& atom = rest.terms[0].first;
    // (x // a + c) // b = (x + c*a) // (a*b)
    if (IsDivMod(atom, Op::kFloorDiv, &inner) && inner <= INT64_MAX / divisor) {
      Linear x = ToLinear(atom->args[0]);
      x.constant += rest.constant * inner;
      AddScaled(whole, DivBy(std::move(x), inner * divisor), 1);
      return whole;
    }
    // (x % m) // b = (x // b) % (m / b)
    if (rest.constant == 0 && IsDivMod(atom, Op::kFloorMod, &inner) && inner % divisor == 0) {
      AddScaled(whole, ModBy(DivBy(ToLinear(atom->args[0]), divisor), inner / divisor), 1);
      return whole;
    }
  }
  AddTerm(whole, Make(Op::kFloorDiv, {Sorted(std::move(rest)), Int(divisor)}), 1);
  return whole;
}

// rest % divisor = factor * (multiple % (divisor / factor)) + small.
bool Analyzer::ModByCommonFactor(const Linear& rest, int64_t divisor, Linear& remainder) {
  auto found = ByCommonFactor(rest, divisor, [&](const Linear& l) { return LinearBounds(l); });
  if (!found) return false;
  remainder = std::move(found->small);
  AddScaled(remainder, ModBy(std::move(found->multiple), divisor / found->factor), found->factor);
  return true;
}

// c * (x % m) is congruent to c * x modulo every divisor of c * m.
bool Analyzer::ExpandModAtoms(Linear& l, int64_t divisor) {
  bool changed = false;
  Linear expanded;
  expanded.constant = l.constant;
  for (const auto& [term, c] : l.terms) {
    int64_t inner = 0;
    if (IsDivMod(term, Op::kFloorMod, &inner) &&
        inner % (divisor / std::gcd(std::abs(c), divisor)) == 0) {
      AddScaled(expanded, ToLinear(term->args[0]), c);
      changed = true;
    } else {
      AddTerm(expanded, term, c);
    }
  }
  if (changed) l = std::move(expanded);
  return changed;
}

Linear Analyzer::ModBy(Linear l, int64_t divisor) {
  if (divisor == 1) return {};
  for (;;) {
    Linear rest;
    rest.constant = FloorModInt(l.constant, divisor);
    for (const auto& [term, c] : l.terms) {
      if (c % divisor != 0) rest.terms.emplace_back(term, c % divisor);
    }
    const Interval bounds = LinearBounds(rest);
    if (bounds.min != INT64_MIN && bounds.max != INT64_MAX) {
      const int64_t quotient = FloorDivInt(bounds.min, divisor);
      if (quotient == FloorDivInt(bounds.max, divisor)) {
        rest.constant -= quotient * divisor;
        return rest;
      }
    }
    Linear remainder;
    if (ModByCommonFactor(rest, divisor, remainder)) {
      Recombine(remainder);
      return remainder;
    }
    // Each round removes a modulus, so this ends.
    if (ExpandModAtoms(rest, divisor)) {
      l = std::move(rest);
      continue;
    }
    return Atom(Make(Op::kFloorMod, {Sorted(std::move(rest)), Int(divisor)}));
  }
}

// c * (y % K) + c*K * (y // K)  ->  c * y, and the same with a modulus around the quotient.
bool Analyzer::RecombineMod(Linear& l, size_t i) {
  int64_t divisor = 0;
  const auto [atom, c] = l.terms[i];
  if (!IsDivMod(atom, Op::kFloorMod, &divisor)) return false;
  const int64_t wanted = c * divisor;
  if (std::none_of(l.terms.begin(), l.terms.end(),
                   [&](const auto& t) { return t.second == wanted; }))
    return false;
  const Linear y = ToLinear(atom->args[0]);
  const Linear quotient = DivBy(y, divisor);
  if (!IsAtom(quotient)) return false;
  const Expr& q = quotient.terms[0].first;
  for (size_t k = 0; k < l.terms.size(); ++k) {
    const auto [other, factor] = l.terms[k];
    if (k == i || factor != wanted) continue;
    int64_t outer = 0;
    Linear replacement;
    if (StructuralEqual(other, q)) {
      replacement = y;
    } else if (IsDivMod(other, Op::kFloorMod, &outer) && StructuralEqual(other->args[0], q)) {
      replacement = ModBy(y, divisor * outer);
    } else {
      continue;
    }
    AddTerm(l, atom, -c);
    AddTerm(l, other, -factor);
    AddScaled(l, replacement, c);
    return true;
  }
  return false;
}

// c * y - c*K * (y // K)  ->  c * (y % K)
bool Analyzer::RecombineDiv(Linear& l, size_t i) {
  int64_t divisor = 0;
  const auto [atom, factor] = l.terms[i];
  if (!IsDivMod(atom, Op::kFloorDiv, &divisor) || factor % divisor != 0) return false;
  const int64_t c = -factor / divisor;
  const Linear y = ToLinear(atom->args[0]);
  if (y.terms.empty()) return false;
  for (const auto& [term, k] : y.terms) {
    const int at = FindTerm(l, term);
    if (at < 0 || l.terms[at].second != c * k) return false;
  }
  AddTerm(l, atom, -factor);
  AddScaled(l, y, -c);
  AddScaled(l, ModBy(y, divisor), c);
  return true;
}

void Analyzer::Recombine(Linear& l) {
  // Each step removes a term or turns a quotient into a modulus; the limit guards against a cycle
  // nobody thought of.
  for (int step = 0; step < 8; ++step) {
    bool changed = false;
    for (size_t i = 0; i < l.terms.size() && !changed; ++i) {
      if (l.terms[i].first->kind != ExprKind::kOp) continue;
      changed = RecombineMod(l, i) || RecombineDiv(l, i);
    }
    if (!changed) return;
  }
}

}  // namespace heddle::ir
