#include "compiler/ir/analysis/index.h"

#include "compiler/ir/analysis/analyzer.h"
#include "compiler/ir/visit.h"

namespace heddle::ir {

Linear LinearIndex(const Buffer& buffer, const std::vector<Expr>& indices, const Ranges& ranges) {
  Expr index = Int(0);
  for (size_t d = 0; d < indices.size(); ++d) index = index * Int(buffer.shape[d]) + indices[d];
  return Analyzer(&ranges).SimplifyToLinear(index);
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

}  // namespace heddle::ir
