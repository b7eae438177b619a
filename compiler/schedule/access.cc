#include "compiler/schedule/access.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "compiler/ir/analysis/index.h"
#include "compiler/ir/analysis/region.h"
#include "compiler/ir/analysis/simplify.h"
#include "compiler/ir/visit.h"

namespace heddle::schedule {

using ir::Expr;

bool ViewStage(const Path& path, StageView* view) {
  const ir::Block& block = path.block();
  if (block.where) return false;
  std::vector<const ir::For*> loops = path.Loops();
  if (loops.size() != block.iters.size()) return false;
  view->block = block.name;
  for (const ir::BlockIter& iter : block.iters) {
    if (iter.binding->kind != ir::ExprKind::kVar) return false;
    auto it = std::find_if(loops.begin(), loops.end(),
                           [&](const ir::For* loop) { return loop->var == iter.binding->var; });
    if (it == loops.end() || (*it)->kind != ir::LoopKind::kSerial) return false;
    Axis axis{(*it)->var->name, iter.var.get(), iter.extent};
    (iter.kind == ir::IterKind::kSpatial ? view->spatial : view->reduce).push_back(axis);
  }
  return true;
}

int64_t StrideOf(const ir::Buffer& buffer, const std::vector<Expr>& indices, const ir::Var* iter) {
  int64_t stride = 0;
  int64_t scale = 1;
  for (size_t d = indices.size(); d > 0; --d) {
    if (ir::UsesVar(indices[d - 1], iter)) {
      auto value = ir::ReachOf(indices[d - 1], {});
      if (!value) return kIrregular;
      const std::optional<int64_t> step = ir::Stride(value->terms, iter);
      if (!step) return kIrregular;
      stride += *step * scale;
    }
    scale *= buffer.shape[d - 1];
  }
  return stride;
}

int64_t SharedBy(const std::vector<Expr>& indices, const ir::Var* iter) {
  int64_t shared = 0;
  const std::function<void(const Expr&)> visit = [&](const Expr& e) {
    int64_t divisor = 0;
    const bool quotient = e->kind == ir::ExprKind::kOp && e->op == ir::Op::kFloorDiv &&
                          e->args[0]->kind == ir::ExprKind::kVar && e->args[0]->var.get() == iter &&
                          ir::IsConstInt(e->args[1], &divisor) && divisor > 0;
    if (quotient) {
      shared = std::gcd(shared, divisor);
    } else if (e->kind == ir::ExprKind::kVar && e->var.get() == iter) {
      shared = 1;
    } else {
      for (const Expr& arg : e->args) visit(arg);
    }
  };
  for (const Expr& index : indices) visit(index);
  return std::max<int64_t>(shared, 1);
}

std::vector<Expr> DistinctLoads(const ir::Block& block) {
  std::vector<Expr> loads;
  ForEachLoad(block.store.value, [&](const Expr& load) {
    bool seen = std::any_of(loads.begin(), loads.end(),
                            [&](const Expr& other) { return ir::StructuralEqual(other, load); });
    if (!seen) loads.push_back(load);
  });
  return loads;
}

int LookupsBy(const ir::Block& block, const ir::Buffer* buffer) {
  int count = 0;
  for (const Expr& load : DistinctLoads(block)) {
    bool found = false;
    for (const Expr& index : load->args)
      ForEachLoad(index, [&](const Expr& inner) { found |= inner->buffer.get() == buffer; });
    count += found;
  }
  return count;
}

int64_t TouchedBy(const ir::Block& block, const std::vector<Axis>& reduce, const Axis& axis,
                  int64_t size) {
  for (const ir::Expr& load : DistinctLoads(block)) {
    for (const ir::Expr& index : load->args) {
      int64_t step = 0, window = 1;
      for (const auto& [term, coefficient] : ir::ToLinear(index).terms) {
        if (term->kind != ir::ExprKind::kVar) continue;
        if (term->var.get() == axis.iter) step = std::abs(coefficient);
        for (const Axis& r : reduce) window *= term->var.get() == r.iter ? r.extent : 1;
      }
      if (step > 0 && window > 1) return std::min(size * window, (size - 1) * step + window);
    }
  }
  return size;
}

VectorFit FitOf(const ir::Block& block, const ir::Var* iter) {
  VectorFit fit;
  auto count = [&](int64_t stride, int weight) {
    if (stride == 1) fit.contiguous += weight;
    if (stride != 0 && stride != 1) fit.scattered += weight;
  };
  for (const Expr& load : DistinctLoads(block)) count(StrideOf(*load->buffer, load->args, iter), 1);
  count(StrideOf(*block.store.buffer, block.store.indices, iter), 2);
  return fit;
}

bool HasReuse(const ir::Block& block) {
  if (!block.reducer) return false;
  for (const Expr& load : DistinctLoads(block)) {
    for (const ir::BlockIter& iter : block.iters) {
      if (iter.kind != ir::IterKind::kSpatial || iter.extent == 1) continue;
      if (StrideOf(*load->buffer, load->args, iter.var.get()) == 0) return true;
    }
  }
  return false;
}

bool IsExpensive(const ir::Block& block) {
  bool expensive = false;
  ir::VisitExpr(block.store.value, [&](const Expr& e) {
    if (e->kind != ir::ExprKind::kOp || !ir::IsFloat(e->dtype)) return;
    expensive |= (e->op >= ir::Op::kExp && e->op <= ir::Op::kAtanh) || e->op == ir::Op::kPow;
  });
  return expensive;
}

std::vector<int64_t> Divisors(int64_t n, int64_t limit) {
  std::vector<int64_t> low, high;
  for (int64_t d = 1; d * d <= n; ++d) {
    if (n % d != 0) continue;
    low.push_back(d);
    if (d * d != n) high.push_back(n / d);
  }
  low.insert(low.end(), high.rbegin(), high.rend());
  std::erase_if(low, [limit](int64_t d) { return d > limit; });
  return low;
}

int64_t LargestDivisorUpTo(int64_t n, int64_t limit) {
  for (int64_t d = std::min(n, limit); d > 1; --d) {
    if (n % d == 0) return d;
  }
  return 1;
}

int64_t PowerOfTwoDivisor(int64_t n, int64_t limit) {
  int64_t p = 1;
  while (p * 2 <= limit && n % (p * 2) == 0) p *= 2;
  return p;
}

}  // namespace heddle::schedule
