#include "compiler/ir/linear.h"

#include <algorithm>
#include <numeric>

#include "compiler/ir/analyzer.h"
#include "compiler/ir/fold.h"

namespace heddle::ir {

bool IsOp(const Expr& e, Op op) { return e->kind == ExprKind::kOp && e->op == op; }

int FindTerm(const Linear& l, const Expr& term) {
  for (size_t i = 0; i < l.terms.size(); ++i) {
    if (StructuralEqual(l.terms[i].first, term)) return static_cast<int>(i);
  }
  return -1;
}

void AddTerm(Linear& l, const Expr& term, int64_t factor) {
  if (factor == 0) return;
  const int i = FindTerm(l, term);
  if (i < 0) {
    l.terms.emplace_back(term, factor);
  } else if ((l.terms[i].second += factor) == 0) {
    l.terms.erase(l.terms.begin() + i);
  }
}

void AddScaled(Linear& l, const Linear& other, int64_t factor) {
  for (const auto& [term, c] : other.terms) AddTerm(l, term, c * factor);
  l.constant += other.constant * factor;
}

int CompareExpr(const Expr& a, const Expr& b) {
  if (a == b) return 0;
  if (a->kind != b->kind) return a->kind < b->kind ? -1 : 1;
  const auto order = [](auto x, auto y) { return x < y ? -1 : (y < x ? 1 : 0); };
  switch (a->kind) {
    case ExprKind::kInt:
      return order(a->int_value, b->int_value);
    case ExprKind::kFloat:
      return order(a->float_value, b->float_value);
    case ExprKind::kVar:
      return a->var == b->var ? 0 : a->var->name.compare(b->var->name);
    case ExprKind::kLoad:
      if (a->buffer != b->buffer) return a->buffer->name.compare(b->buffer->name);
      break;
    case ExprKind::kOp:
      if (a->op != b->op) return order(a->op, b->op);
      break;
    case ExprKind::kCast:
      if (a->dtype != b->dtype) return order(a->dtype, b->dtype);
      break;
  }
  for (size_t i = 0; i < a->args.size() && i < b->args.size(); ++i) {
    if (int c = CompareExpr(a->args[i], b->args[i])) return c;
  }
  return order(a->args.size(), b->args.size());
}

void SortTerms(Linear& l) {
  if (l.terms.size() < 2) return;
  std::sort(l.terms.begin(), l.terms.end(), [](const auto& a, const auto& b) {
    if ((a.second > 0) != (b.second > 0)) return a.second > 0;
    if (a.second != b.second) return std::abs(a.second) > std::abs(b.second);
    return CompareExpr(a.first, b.first) < 0;
  });
}

int64_t CommonFactor(const Linear& l) {
  int64_t g = 0;
  for (const auto& term : l.terms) g = std::gcd(g, term.second);
  return g;
}

namespace {

void Collect(const Expr& e, int64_t factor, Linear& l) {
  int64_t value = 0;
  if (e->dtype == DType::kI64) {
    if (IsConstInt(e, &value)) {
      l.constant += factor * value;
      return;
    }
    if (IsOp(e, Op::kAdd) || IsOp(e, Op::kSub)) {
      Collect(e->args[0], factor, l);
      Collect(e->args[1], e->op == Op::kAdd ? factor : -factor, l);
      return;
    }
    if (IsOp(e, Op::kNeg)) return Collect(e->args[0], -factor, l);
    if (IsOp(e, Op::kMul)) {
      if (IsConstInt(e->args[1], &value)) return Collect(e->args[0], factor * value, l);
      if (IsConstInt(e->args[0], &value)) return Collect(e->args[1], factor * value, l);
    }
  }
  AddTerm(l, e, factor);
}

}  // namespace

Linear ToLinear(const Expr& e) {
  Linear l;
  Collect(e, 1, l);
  return l;
}

Expr FromLinear(const Linear& l) {
  Expr sum;
  for (const auto& [term, c] : l.terms) {
    if (c <= 0) continue;
    Expr product = c == 1 ? term : term * Int(c);
    sum = sum ? sum + product : product;
  }
  if (!sum) sum = Int(l.constant);
  for (const auto& [term, c] : l.terms) {
    if (c >= 0) continue;
    sum = sum - (c == -1 ? term : term * Int(-c));
  }
  const bool constant_used =
      std::none_of(l.terms.begin(), l.terms.end(), [](const auto& t) { return t.second > 0; });
  if (constant_used || l.constant == 0) return sum;
  return l.constant > 0 ? sum + Int(l.constant) : sum - Int(-l.constant);
}

// ---- Canonical forms under a context ------------------------------------------------------------

namespace {

Linear Atom(Expr e) {
  Linear l;
  int64_t value = 0;
  if (IsConstInt(e, &value)) {
    l.constant = value;
  } else {
    l.terms.emplace_back(std::move(e), 1);
  }
  return l;
}

Linear Constant(int64_t value) {
  Linear l;
  l.constant = value;
  return l;
}

Expr Sorted(Linear l) {
  SortTerms(l);
  return FromLinear(l);
}

bool IsAtom(const Linear& l) {
  return l.constant == 0 && l.terms.size() == 1 && l.terms[0].second == 1;
}

// Atoms x//K and x%K with a constant K.
bool IsDivMod(const Expr& e, Op op, int64_t* divisor) {
  return IsOp(e, op) && IsConstInt(e->args[1], divisor) && *divisor > 0;
}

}  // namespace

Linear Analyzer::SimplifyToLinear(const Expr& e) {
  Linear l = Lin(e);
  SortTerms(l);
  return l;
}

Linear Analyzer::Lin(const Expr& e) {
  switch (e->kind) {
    case ExprKind::kInt:
      return Constant(e->int_value);
    case ExprKind::kVar: {
      const Interval range = RangeOf(e->var.get());
      return range.min == range.max ? Constant(range.min) : Atom(e);
    }
    case ExprKind::kOp:
      return LinOp(e);
    default:
      return Atom(SimplifyArgs(e));
  }
}

Linear Analyzer::LinOp(const Expr& e) {
  int64_t value = 0;
  switch (e->op) {
    case Op::kAdd:
    case Op::kSub: {
      Linear l = Lin(e->args[0]);
      AddScaled(l, Lin(e->args[1]), e->op == Op::kAdd ? 1 : -1);
      Recombine(l);
      return l;
    }
    case Op::kNeg: {
      Linear l;
      AddScaled(l, Lin(e->args[0]), -1);
      return l;
    }
    case Op::kMul:
      return LinProduct(e);
    case Op::kFloorDiv:
      if (IsConstInt(e->args[1], &value) && value > 0) return DivBy(Lin(e->args[0]), value);
      break;
    case Op::kFloorMod:
      if (IsConstInt(e->args[1], &value) && value > 0) return ModBy(Lin(e->args[0]), value);
      break;
    case Op::kDiv:
      if (IsConstInt(e->args[1], &value) && value > 0) {
        Linear l = Lin(e->args[0]);
        if (LinearBounds(l).min >= 0) return DivBy(std::move(l), value);
        return Atom(Make(Op::kDiv, {Sorted(std::move(l)), e->args[1]}));
      }
      break;
    case Op::kMin:
    case Op::kMax:
      return LinMinMax(e);
    case Op::kSelect:
      return LinSelect(e);
    case Op::kAbs: {
      Linear l = Lin(e->args[0]);
      const Interval bounds = LinearBounds(l);
      if (bounds.min >= 0) return l;
      return Atom(Make(Op::kAbs, {Sorted(std::move(l))}));
    }
    default:
      break;
  }
  return Atom(SimplifyArgs(e));
}

Linear Analyzer::LinProduct(const Expr& e) {
  Linear a = Lin(e->args[0]), b = Lin(e->args[1]);
  if (a.terms.empty()) std::swap(a, b);
  if (b.terms.empty()) {
    Linear l;
    if (b.constant != 0) AddScaled(l, a, b.constant);
    return l;
  }
  Expr x = Sorted(std::move(a)), y = Sorted(std::move(b));
  if (CompareExpr(y, x) < 0) std::swap(x, y);
  return Atom(Make(Op::kMul, {std::move(x), std::move(y)}));
}

Linear Analyzer::LinMinMax(const Expr& e) {
  Linear a = Lin(e->args[0]), b = Lin(e->args[1]);
  Linear difference = b;
  AddScaled(difference, a, -1);
  const Interval d = LinearBounds(difference);
  const bool is_min = e->op == Op::kMin;
  if (d.min >= 0) return is_min ? a : b;
  if (d.max <= 0) return is_min ? b : a;
  // min(min(x, c), b): an operand that the new one makes superfluous goes.
  for (int swapped = 0; swapped < 2; ++swapped, std::swap(a, b)) {
    if (!IsAtom(a) || !IsOp(a.terms[0].first, e->op)) continue;
    const Expr inner = a.terms[0].first;
    for (int k = 0; k < 2; ++k) {
      Linear over = ToLinear(inner->args[k]);
      AddScaled(over, b, -1);
      const Interval o = LinearBounds(over);
      if (is_min ? o.min >= 0 : o.max <= 0)
        return Lin(Make(e->op, {inner->args[1 - k], Sorted(b)}));
    }
  }
  Expr x = Sorted(std::move(a)), y = Sorted(std::move(b));
  // Constants last, else structural order.
  if (x->kind == ExprKind::kInt || (y->kind != ExprKind::kInt && CompareExpr(y, x) < 0))
    std::swap(x, y);
  return Atom(Make(e->op, {std::move(x), std::move(y)}));
}

Linear Analyzer::LinSelect(const Expr& e) {
  Expr simple = SimplifySelect(e);
  if (!IsOp(simple, Op::kSelect)) return ToLinear(simple);
  return Atom(std::move(simple));
}

// rest = factor * x + y with y inside one multiple of factor: rest // divisor = (x + shift) //
// (divisor / factor).
bool Analyzer::DivByCommonFactor(const Linear& rest, int64_t divisor, Linear& quotient) {
  int64_t tried = 0;
  for (const auto& candidate : rest.terms) {
    const int64_t factor = std::gcd(std::abs(candidate.second), divisor);
    if (factor <= 1 || factor == tried) continue;
    tried = factor;
    Linear multiple, small;
    for (const auto& [term, c] : rest.terms) {
      if (c % factor == 0) {
        multiple.terms.emplace_back(term, c / factor);
      } else {
        small.terms.emplace_back(term, c);
      }
    }
    multiple.constant = FloorDivInt(rest.constant, factor);
    small.constant = FloorModInt(rest.constant, factor);
    const Interval bounds = LinearBounds(small);
    if (bounds.min == INT64_MIN || bounds.max == INT64_MAX) continue;
    const int64_t shift = FloorDivInt(bounds.min, factor);
    if (shift != FloorDivInt(bounds.max, factor)) continue;
    multiple.constant += shift;
    quotient = DivBy(std::move(multiple), divisor / factor);
    return true;
  }
  return false;
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

// rest = factor * x + y with y inside one multiple of factor: the modulus is factor * ((x + shift)
// % (divisor / factor)) + y.
bool Analyzer::ModByCommonFactor(const Linear& rest, int64_t divisor, Linear& remainder) {
  int64_t tried = 0;
  for (const auto& candidate : rest.terms) {
    const int64_t factor = std::gcd(std::abs(candidate.second), divisor);
    if (factor <= 1 || factor == tried) continue;
    tried = factor;
    Linear multiple, small;
    for (const auto& [term, c] : rest.terms) {
      if (c % factor == 0) {
        multiple.terms.emplace_back(term, c / factor);
      } else {
        small.terms.emplace_back(term, c);
      }
    }
    multiple.constant = FloorDivInt(rest.constant, factor);
    small.constant = FloorModInt(rest.constant, factor);
    const Interval bounds = LinearBounds(small);
    if (bounds.min == INT64_MIN || bounds.max == INT64_MAX) continue;
    const int64_t shift = FloorDivInt(bounds.min, factor);
    if (shift != FloorDivInt(bounds.max, factor)) continue;
    multiple.constant += shift;
    small.constant -= shift * factor;
    remainder = std::move(small);
    AddScaled(remainder, ModBy(std::move(multiple), divisor / factor), factor);
    return true;
  }
  return false;
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
