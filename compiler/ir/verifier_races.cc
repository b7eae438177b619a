// Rule `race`: iterations of loops that claim independence write disjoint elements.
#include <algorithm>
#include <cstdlib>

#include "compiler/ir/linear.h"
#include "compiler/ir/verifier_rules.h"
#include "compiler/ir/visit.h"

namespace heddle::ir {
namespace {

class CommonLoopFinder {
 public:
  void Visit(const Stmt& s) {
    if (const For* loop = As<For>(s)) {
      path_.push_back(loop);
      Visit(loop->body);
      path_.pop_back();
    } else if (const If* branch = As<If>(s)) {
      Loads(branch->condition);
      Visit(branch->body);
    } else if (const Alloc* alloc = As<Alloc>(s)) {
      Visit(alloc->body);
    } else if (const Seq* seq = As<Seq>(s)) {
      for (const Stmt& child : seq->stmts) Visit(child);
    } else if (const Store* store = As<Store>(s)) {
      VisitStore(*store);
    } else if (const Block* block = As<Block>(s)) {
      if (block->where) Loads(block->where);
      for (const BlockIter& iter : block->iters) Loads(iter.binding);
      if (block->reducer && block->reducer->init) Loads(block->reducer->init);
      VisitStore(block->store);
    }
  }

  CommonLoops result;

 private:
  void VisitStore(const Store& store) {
    Access(store.buffer.get());
    for (const Expr& index : store.indices) Loads(index);
    Loads(store.value);
  }
  void Loads(const Expr& e) {
    if (e->kind == ExprKind::kLoad) Access(e->buffer.get());
    for (const Expr& a : e->args) Loads(a);
  }
  void Access(const Buffer* buffer) {
    auto [it, is_new] = result.try_emplace(buffer, path_);
    if (is_new) return;
    auto& common = it->second;
    const auto end = std::mismatch(common.begin(), common.end(), path_.begin(), path_.end()).first;
    common.erase(end, common.end());
  }

  std::vector<const For*> path_;
};

enum class Verdict { kDisjoint, kOverlap, kUnknown };

// Whether one number (an index, or several joined) tells the iterations of loops[at] apart: its
// coefficient exceeds what the loops further in can add.
Verdict Separates(const Expr& index, const std::vector<const For*>& loops, size_t at,
                  Analyzer& analyzer) {
  const Var* var = loops[at]->var.get();
  const Linear l = analyzer.SimplifyToLinear(index);
  int64_t coefficient = 0, spread = 0;
  Linear inner;  // what varies while the loop stands still
  for (const auto& [term, c] : l.terms) {
    if (term->kind == ExprKind::kVar && term->var.get() == var) {
      coefficient = c;
      continue;
    }
    if (UsesVar(term, var)) return Verdict::kUnknown;
    bool varies = false;
    VisitExpr(term, [&](const Expr& e) { varies |= e->kind == ExprKind::kLoad; });
    for (size_t i = at + 1; i < loops.size() && !varies; ++i)
      varies = UsesVar(term, loops[i]->var.get());
    if (!varies) continue;
    inner.terms.emplace_back(term, c);
    const auto bounds = analyzer.Bounds(term);
    int64_t width = 0;
    if (!bounds || __builtin_sub_overflow(bounds->max, bounds->min, &width) ||
        __builtin_mul_overflow(width, std::abs(c), &width) ||
        __builtin_add_overflow(spread, width, &spread)) {
      return Verdict::kUnknown;
    }
  }
  if (coefficient == 0) return Verdict::kOverlap;
  if (std::abs(coefficient) <= spread) {
    // Guards may keep the inner terms closer together than their ranges do one by one.
    const auto together = analyzer.Bounds(FromLinear(inner));
    if (together) spread = std::min(spread, together->max - together->min);
  }
  return std::abs(coefficient) > spread ? Verdict::kDisjoint : Verdict::kOverlap;
}

}  // namespace

CommonLoops FindCommonLoops(const Program& program) {
  CommonLoopFinder finder;
  finder.Visit(program.body);
  return std::move(finder.result);
}

bool WritesOverlap(const std::vector<Expr>& indices, const Buffer& buffer,
                   const std::vector<const For*>& loops, size_t at, Analyzer& analyzer) {
  const Var* var = loops[at]->var.get();
  const auto range = analyzer.Bounds(VarExpr(loops[at]->var));
  if (range && range->min == range->max)
    return false;  // one iteration, or a guard that lets only one pass
  bool unknown = false;
  Expr joined;  // the indices that depend on the loop, as one mixed-radix number: fused loops come
                // together again
  for (size_t k = 0; k < indices.size(); ++k) {
    if (!UsesVar(indices[k], var)) continue;
    const Verdict verdict = Separates(indices[k], loops, at, analyzer);
    if (verdict == Verdict::kDisjoint) return false;
    unknown |= verdict == Verdict::kUnknown;
    joined = joined ? joined * Int(buffer.shape[k]) + indices[k] : indices[k];
  }
  if (!joined) return true;
  const Verdict verdict = Separates(joined, loops, at, analyzer);
  return verdict == Verdict::kOverlap && !unknown;
}

}  // namespace heddle::ir
