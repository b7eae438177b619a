// Simplification of whole statements: expressions under the ranges of their loops and the facts of
// their guards.
#include "compiler/ir/analysis/simplify.h"

#include "compiler/ir/analysis/analyzer.h"

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
    if (const Alloc* alloc = As<Alloc>(s)) {
      Stmt body = Visit(alloc->body);
      if (!body || body == alloc->body) return body ? s : nullptr;
      return MakeStmt(Alloc{alloc->buffer, std::move(body)});
    }
    if (const Seq* seq = As<Seq>(s)) {
      std::vector<Stmt> stmts;
      for (const Stmt& child : seq->stmts) {
        if (Stmt result = Visit(child)) stmts.push_back(std::move(result));
      }
      return stmts.empty() ? nullptr : MakeSeq(std::move(stmts));
    }
    if (const Store* store = As<Store>(s)) return VisitStore(s, *store);
    if (const Prefetch* prefetch = As<Prefetch>(s))
      return MakeStmt(Prefetch{analyzer_.Simplify(prefetch->element)});
    return s;
  }

 private:
  Stmt VisitFor(const Stmt& s, const For& loop) {
    const auto position = analyzer_.Mark();
    const bool is_gpu = loop.kind >= LoopKind::kBlockX;  // launches threads even when there is one
    const bool drop = loop.extent == 1 && !keep_loops_ && !is_gpu;
    analyzer_.Bind(loop.var.get(), {0, loop.extent - 1});
    Stmt body = Visit(loop.body);
    analyzer_.Restore(position);
    if (!body || drop) return body;
    if (body == loop.body) return s;
    return MakeStmt(For{loop.var, loop.extent, loop.kind, std::move(body)});
  }

  Stmt VisitIf(const Stmt& s, const If& branch) {
    Expr condition = analyzer_.Simplify(branch.condition);
    int64_t value = 0;
    if (IsConstInt(condition, &value)) return value ? Visit(branch.body) : nullptr;
    const auto position = analyzer_.Mark();
    analyzer_.Assume(condition);
    Stmt body = Visit(branch.body);
    analyzer_.Restore(position);
    if (!body) return nullptr;
    if (body == branch.body && condition == branch.condition) return s;
    return MakeStmt(If{std::move(condition), std::move(body)});
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

  Stmt VisitStore(const Stmt& s, const Store& store) {
    Store result{store.buffer, {}, analyzer_.Simplify(store.value)};
    bool changed = result.value != store.value;
    for (const Expr& index : store.indices) {
      result.indices.push_back(analyzer_.Simplify(index));
      changed |= result.indices.back() != index;
    }
    return changed ? MakeStmt(std::move(result)) : s;
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
