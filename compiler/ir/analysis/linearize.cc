// Converts expressions to linear forms, using what is known about their variables.
#include "compiler/ir/analysis/analyzer.h"
#include "compiler/ir/analysis/linear.h"

namespace heddle::ir {

namespace {

Linear Constant(int64_t value) {
  Linear l;
  l.constant = value;
  return l;
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
  // min(min(x, c), b): drops an inner operand that `b` makes superfluous.
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

}  // namespace heddle::ir
