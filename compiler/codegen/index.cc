#include "compiler/codegen/index.h"

#include "compiler/ir/visit.h"

namespace heddle::codegen {

using namespace ir;

namespace {

bool IsOp(const Expr& e, Op op) { return e->kind == ExprKind::kOp && e->op == op; }

// a*c * (x // c) + a * (x % c) = a * x. Merges one such pair; false when there is none.
bool MergeDivMod(Linear* linear) {
  auto& terms = linear->terms;
  for (size_t i = 0; i < terms.size(); ++i) {
    int64_t divisor;
    if (!IsOp(terms[i].first, Op::kFloorDiv) || !IsConstInt(terms[i].first->args[1], &divisor))
      continue;
    for (size_t j = 0; j < terms.size(); ++j) {
      const Expr& mod = terms[j].first;
      if (!IsOp(mod, Op::kFloorMod) || terms[j].second * divisor != terms[i].second) continue;
      if (!StructuralEqual(mod->args[1], terms[i].first->args[1]) ||
          !StructuralEqual(mod->args[0], terms[i].first->args[0])) {
        continue;
      }
      Expr whole = mod->args[0] * Int(terms[j].second);
      terms.erase(terms.begin() + static_cast<ptrdiff_t>(std::max(i, j)));
      terms.erase(terms.begin() + static_cast<ptrdiff_t>(std::min(i, j)));
      *linear = ToLinear(FromLinear(*linear) + whole);
      return true;
    }
  }
  return false;
}

}  // namespace

Linear LinearIndex(const Buffer& buffer, const std::vector<Expr>& indices) {
  Expr index = Int(0);
  for (size_t d = 0; d < indices.size(); ++d) index = index * Int(buffer.shape[d]) + indices[d];
  Linear linear = ToLinear(index);
  while (MergeDivMod(&linear)) {
  }
  return linear;
}

bool InBounds(const Buffer& buffer, const std::vector<Expr>& indices, const Ranges& ranges) {
  for (size_t d = 0; d < indices.size(); ++d) {
    std::optional<Interval> bounds = Bounds(indices[d], ranges);
    if (!bounds || bounds->min < 0 || bounds->max >= buffer.shape[d]) return false;
  }
  return true;
}

bool NeedsGuard(const Expr& e, const Ranges& ranges) {
  bool needs = false;
  VisitExpr(e, [&](const Expr& x) {
    needs = needs || (x->kind == ExprKind::kLoad && !InBounds(*x->buffer, x->args, ranges));
  });
  return needs;
}

bool DependsOn(const Linear& linear, const Var* var) {
  for (const auto& [term, coefficient] : linear.terms) {
    if (UsesVar(term, var)) return true;
  }
  return false;
}

}  // namespace heddle::codegen
