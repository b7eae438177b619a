// Simplification of whole statements: expressions under the ranges of their loops and the facts of
// their guards.
#include "compiler/ir/analysis/simplify.h"

#include "compiler/ir/analysis/analyzer.h"
#include "compiler/ir/visit.h"

namespace heddle::ir {
namespace {

class StmtSimplifier {
 public:
  explicit StmtSimplifier(bool keep_loops) : keep_loops_(keep_loops) {}

  // Null when nothing is left.
  Stmt Visit(const Stmt& s) {
    if (const For* loop = As<For>(s)) return VisitFor(s, *loop);
    if (const If* branch = As<If>(s)) return VisitIf(s, *branch);
    if (const Block* block = As<Block>(s)) return VisitBlock(*block);
    return VisitChildren(MapExprs(s, [&](const Expr& e) { return analyzer_.Simplify(e); }));
  }

 private:
  Stmt VisitChildren(const Stmt& s) {
    return MapChildren(s, [&](const Stmt& child) { return Visit(child); });
  }

  // `s` is the loop.
  Stmt VisitFor(const Stmt& s, const For& loop) {
    const auto position = analyzer_.Mark();
    const bool is_gpu = IsGpu(loop.kind);  // launches threads even when there is one
    const bool drop = loop.extent == 1 && !keep_loops_ && !is_gpu;
    analyzer_.Bind(loop.var.get(), {0, loop.extent - 1});
    Stmt result = VisitChildren(s);
    analyzer_.Restore(position);
    return result && drop ? As<For>(result)->body : result;
  }

  // `s` is the branch.
  Stmt VisitIf(const Stmt& s, const If& branch) {
    const Expr condition = analyzer_.Simplify(branch.condition);
    int64_t value = 0;
    if (IsConstInt(condition, &value)) return value ? Visit(branch.body) : nullptr;
    const auto position = analyzer_.Mark();
    analyzer_.Assume(condition);
    Stmt result = VisitChildren(MapExprs(s, [&](const Expr&) { return condition; }));
    analyzer_.Restore(position);
    return result;
  }

  Stmt VisitBlock(const Block& block) {
    Block result = block;
    int64_t value = 0;
    const auto position = analyzer_.Mark();
    if (block.where) {
      result.where = analyzer_.Simplify(block.where);
      if (IsConstInt(result.where, &value)) {
        if (!value) return nullptr;
        result.where = nullptr;
      } else {
        analyzer_.Assume(result.where);
      }
    }
    for (BlockIter& iter : result.iters) iter.binding = analyzer_.Simplify(iter.binding);
    analyzer_.Restore(position);
    for (const BlockIter& iter : block.iters) analyzer_.Bind(iter.var.get(), {0, iter.extent - 1});
    result.store.indices.clear();
    for (const Expr& index : block.store.indices) {
      // A plain iterator stays even if its extent is one: primitives look for stores of the form
      // out[v0, v1, ..].
      const bool plain = keep_loops_ && index->kind == ExprKind::kVar;
      result.store.indices.push_back(plain ? index : analyzer_.Simplify(index));
    }
    if (result.reducer && result.reducer->init)
      result.reducer->init = analyzer_.Simplify(result.reducer->init);
    result.store.value = analyzer_.Simplify(block.store.value);
    analyzer_.Restore(position);
    return MakeStmt(std::move(result));
  }

  Analyzer analyzer_;
  const bool keep_loops_;
};

}  // namespace

Stmt Simplify(const Stmt& s, bool keep_loops) {
  Stmt result = StmtSimplifier(keep_loops).Visit(s);
  return result ? result : MakeStmt(Seq{});
}

}  // namespace heddle::ir
