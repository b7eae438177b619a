#include "compiler/ir/analysis/linear.h"

#include <algorithm>
#include <numeric>

namespace heddle::ir {

bool IsOp(const Expr& e, Op op) { return e->kind == ExprKind::kOp && e->op == op; }

int FindTerm(const Terms& terms, const Expr& term) {
  for (size_t i = 0; i < terms.size(); ++i) {
    if (StructuralEqual(terms[i].first, term)) return static_cast<int>(i);
  }
  return -1;
}

void AddTerm(Terms& terms, const Expr& term, int64_t factor) {
  if (factor == 0) return;
  const int i = FindTerm(terms, term);
  if (i < 0) {
    terms.emplace_back(term, factor);
  } else if ((terms[i].second += factor) == 0) {
    terms.erase(terms.begin() + i);
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
  return g < 0 ? 1 : g;  // 2^63 has no positive i64
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

Expr Sorted(Linear l) {
  SortTerms(l);
  return FromLinear(l);
}

bool IsAtom(const Linear& l) {
  return l.constant == 0 && l.terms.size() == 1 && l.terms[0].second == 1;
}

}  // namespace heddle::ir
