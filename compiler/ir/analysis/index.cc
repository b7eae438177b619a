#include "compiler/ir/analysis/index.h"

#include "compiler/ir/analysis/analyzer.h"
#include "compiler/ir/visit.h"

namespace heddle::ir {

Linear LinearIndex(const Buffer& buffer, const std::vector<Expr>& indices, const Ranges& ranges) {
  Expr index = Int(0);
  for (size_t d = 0; d < indices.size(); ++d) index = index * Int(buffer.shape[d]) + indices[d];
  return Analyzer(&ranges).SimplifyToLinear(index);
}

std::optional<int64_t> Stride(const Terms& terms, const Var* var) {
  int64_t stride = 0;
  for (const auto& [term, coefficient] : terms) {
    if (term->kind == ExprKind::kVar && term->var.get() == var) {
      stride = coefficient;
    } else if (UsesVar(term, var)) {
      return std::nullopt;
    }
  }
  return stride;
}

bool InBounds(const Buffer& buffer, const std::vector<Expr>& indices, const Ranges& ranges) {
  for (size_t d = 0; d < indices.size(); ++d) {
    std::optional<Interval> bounds = Bounds(indices[d], ranges);
    if (!bounds || bounds->min < 0 || bounds->max >= buffer.shape[d]) return false;
  }
  return true;
}

bool NeedsGuard(const Expr& e, const Ranges& ranges) {
  return Any(e, [&](const Expr& x) {
    return x->kind == ExprKind::kLoad && !InBounds(*x->buffer, x->args, ranges);
  });
}

bool DependsOn(const Linear& linear, const Var* var) { return Stride(linear, var) != 0; }

}  // namespace heddle::ir
