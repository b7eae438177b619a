#include "compiler/ir/visit.h"

#include <cstddef>
#include <unordered_set>

namespace heddle::ir {

void VisitExpr(const Expr& e, const std::function<void(const Expr&)>& fn) {
  fn(e);
  for (const Expr& a : e->args) VisitExpr(a, fn);
}

void VisitStmt(const Stmt& s, const std::function<bool(const Stmt&)>& fn) {
  if (!fn(s)) return;
  if (const For* loop = As<For>(s)) {
    VisitStmt(loop->body, fn);
  } else if (const If* branch = As<If>(s)) {
    VisitStmt(branch->body, fn);
  } else if (const Alloc* alloc = As<Alloc>(s)) {
    VisitStmt(alloc->body, fn);
  } else if (const Seq* seq = As<Seq>(s)) {
    for (const Stmt& child : seq->stmts) VisitStmt(child, fn);
  }
}

namespace {

void VisitStoreExprs(const Store& store, const std::function<void(const Expr&)>& fn) {
  for (const Expr& index : store.indices) fn(index);
  fn(store.value);
}

}  // namespace

void VisitStmtExprs(const Stmt& s, const std::function<void(const Expr&)>& fn) {
  VisitStmt(s, [&](const Stmt& node) {
    if (const If* branch = As<If>(node)) {
      fn(branch->condition);
    } else if (const Store* store = As<Store>(node)) {
      VisitStoreExprs(*store, fn);
    } else if (const Block* block = As<Block>(node)) {
      for (const BlockIter& iter : block->iters) fn(iter.binding);
      if (block->where) fn(block->where);
      if (block->reducer && block->reducer->init) fn(block->reducer->init);
      VisitStoreExprs(block->store, fn);
    } else if (const Prefetch* prefetch = As<Prefetch>(node)) {
      fn(prefetch->element);
    }
    return true;
  });
}

namespace {

// Rebuilds bottom-up with what `fn` makes of a node; null, of either, means that it stays: most of
// what a rewrite visits it leaves alone, and makes nothing for.
template <typename F>
Expr Changed(const Expr& e, const F& fn) {
  const std::vector<Expr>& old = e->args;
  size_t k = 0;
  Expr first;
  while (k < old.size() && !(first = Changed(old[k], fn))) ++k;
  if (k == old.size()) return fn(e);
  std::vector<Expr> args;
  args.reserve(old.size());
  args.assign(old.begin(), old.begin() + static_cast<std::ptrdiff_t>(k));
  args.push_back(std::move(first));
  for (++k; k < old.size(); ++k) {
    Expr arg = Changed(old[k], fn);
    args.push_back(arg ? std::move(arg) : old[k]);
  }
  Expr made = e->kind == ExprKind::kOp     ? Make(e->op, std::move(args))
              : e->kind == ExprKind::kCast ? Cast(e->dtype, std::move(args[0]))
                                           : Load(e->buffer, std::move(args));
  Expr result = fn(made);
  return result ? result : made;
}

}  // namespace

Expr RewriteExpr(const Expr& e, const std::function<Expr(const Expr&)>& fn) {
  Expr result = Changed(e, [&](const Expr& node) {
    Expr rewritten = fn(node);
    return rewritten == node ? nullptr : rewritten;
  });
  return result ? result : e;
}

namespace {

using ExprFn = std::function<Expr(const Expr&)>;

Expr Apply(const ExprFn& fn, const Expr& e, bool& changed) {
  if (!e || !fn) return e;
  Expr result = fn(e);
  changed |= result != e;
  return result;
}

Store RewriteStore(const Store& store, const ExprFn& fn, bool& changed) {
  Store result{store.buffer, {}, nullptr};
  for (const Expr& index : store.indices) result.indices.push_back(Apply(fn, index, changed));
  result.value = Apply(fn, store.value, changed);
  return result;
}

Stmt RewriteBlock(const Stmt& s, const Block& block, const ExprFn& fn) {
  if (!fn) return s;
  bool changed = false;
  std::vector<Expr> bindings;
  for (const BlockIter& iter : block.iters) bindings.push_back(Apply(fn, iter.binding, changed));
  Expr where = Apply(fn, block.where, changed);
  Expr init = block.reducer ? Apply(fn, block.reducer->init, changed) : nullptr;
  Store store = RewriteStore(block.store, fn, changed);
  if (!changed) return s;
  Block result = block;
  for (size_t k = 0; k < bindings.size(); ++k) result.iters[k].binding = std::move(bindings[k]);
  result.where = std::move(where);
  if (result.reducer) result.reducer->init = std::move(init);
  result.store = std::move(store);
  return MakeStmt(std::move(result));
}

using StmtFn = std::function<Stmt(const Stmt&)>;

// Null when nothing is left of the statement.
Stmt RewriteChildren(const Stmt& s, const StmtFn& stmt_fn, const ExprFn& expr_fn) {
  bool changed = false;
  if (const For* loop = As<For>(s)) {
    Stmt body = RewriteStmt(loop->body, stmt_fn, expr_fn);
    if (!body || body == loop->body) return body ? s : nullptr;
    return MakeStmt(For{loop->var, loop->extent, loop->kind, std::move(body)});
  }
  if (const Alloc* alloc = As<Alloc>(s)) {
    Stmt body = RewriteStmt(alloc->body, stmt_fn, expr_fn);
    if (!body || body == alloc->body) return body ? s : nullptr;
    return MakeStmt(Alloc{alloc->buffer, std::move(body)});
  }
  if (const If* branch = As<If>(s)) {
    Expr condition = Apply(expr_fn, branch->condition, changed);
    Stmt body = RewriteStmt(branch->body, stmt_fn, expr_fn);
    if (!body) return nullptr;
    if (!changed && body == branch->body) return s;
    return MakeStmt(If{std::move(condition), std::move(body)});
  }
  if (const Seq* seq = As<Seq>(s)) {
    std::vector<Stmt> stmts;
    for (const Stmt& child : seq->stmts) {
      Stmt result = RewriteStmt(child, stmt_fn, expr_fn);
      changed |= result != child;
      if (result) stmts.push_back(std::move(result));
    }
    if (!changed) return s;
    if (stmts.empty()) return nullptr;
    return MakeSeq(std::move(stmts));
  }
  if (const Block* block = As<Block>(s)) return RewriteBlock(s, *block, expr_fn);
  if (const Store* store = As<Store>(s)) {
    Store result = RewriteStore(*store, expr_fn, changed);
    return changed ? MakeStmt(std::move(result)) : s;
  }
  if (const Prefetch* prefetch = As<Prefetch>(s)) {
    Expr element = Apply(expr_fn, prefetch->element, changed);
    return changed ? MakeStmt(Prefetch{std::move(element)}) : s;
  }
  return s;
}

}  // namespace

Stmt RewriteStmt(const Stmt& s, const StmtFn& stmt_fn, const ExprFn& expr_fn) {
  Stmt result = RewriteChildren(s, stmt_fn, expr_fn);
  if (!result || !stmt_fn) return result;
  return stmt_fn(result);
}

Expr Substitute(const Expr& e, const Substitution& map) {
  Expr result = Changed(e, [&](const Expr& node) -> Expr {
    if (node->kind != ExprKind::kVar) return nullptr;
    auto it = map.find(node->var.get());
    return it == map.end() ? nullptr : it->second;
  });
  return result ? result : e;
}

Stmt Substitute(const Stmt& s, const Substitution& map) {
  return RewriteStmt(s, nullptr, [&](const Expr& e) { return Substitute(e, map); });
}

Expr ReplaceBuffers(const Expr& e, const BufferMap& map) {
  Expr result = Changed(e, [&](const Expr& node) -> Expr {
    if (node->kind != ExprKind::kLoad) return nullptr;
    auto it = map.find(node->buffer.get());
    return it == map.end() ? nullptr : Load(it->second, node->args);
  });
  return result ? result : e;
}

Stmt ReplaceBuffers(const Stmt& s, const BufferMap& map) {
  const auto mapped = [&](const BufferRef& buffer) {
    auto it = map.find(buffer.get());
    return it == map.end() ? buffer : it->second;
  };
  return RewriteStmt(
      s,
      [&](const Stmt& node) -> Stmt {
        if (const Store* store = As<Store>(node)) {
          if (mapped(store->buffer) == store->buffer) return node;
          return MakeStmt(Store{mapped(store->buffer), store->indices, store->value});
        }
        if (const Block* block = As<Block>(node)) {
          if (mapped(block->store.buffer) == block->store.buffer) return node;
          Block result = *block;
          result.store.buffer = mapped(block->store.buffer);
          return MakeStmt(std::move(result));
        }
        if (const Alloc* alloc = As<Alloc>(node)) {
          if (mapped(alloc->buffer) == alloc->buffer) return node;
          return MakeStmt(Alloc{mapped(alloc->buffer), alloc->body});
        }
        return node;
      },
      [&](const Expr& e) { return ReplaceBuffers(e, map); });
}

bool StoresShared(const Stmt& s) {
  bool found = false;
  VisitStmt(s, [&](const Stmt& node) {
    const Store* store = As<Store>(node);
    const Block* block = As<Block>(node);
    found |= (store && store->buffer->scope == Scope::kShared) ||
             (block && block->store.buffer->scope == Scope::kShared);
    return !found;
  });
  return found;
}

std::vector<VarRef> FreeVars(const Expr& e) {
  std::vector<VarRef> result;
  std::unordered_set<const Var*> seen;
  VisitExpr(e, [&](const Expr& node) {
    if (node->kind == ExprKind::kVar && seen.insert(node->var.get()).second)
      result.push_back(node->var);
  });
  return result;
}

bool UsesVar(const Expr& e, const Var* var) {
  if (e->kind == ExprKind::kVar) return e->var.get() == var;
  for (const Expr& a : e->args) {
    if (UsesVar(a, var)) return true;
  }
  return false;
}

namespace {

// Float operations of one evaluation, every branch of a select counted.
double ExprFlops(const Expr& e) {
  double flops = 0;
  if (e->kind == ExprKind::kOp && e->op != Op::kSelect && !e->args.empty() &&
      IsFloat(e->args[0]->dtype))
    flops = 1;
  for (const Expr& a : e->args) flops += ExprFlops(a);
  return flops;
}

double StmtFlops(const Stmt& s) {
  if (const For* loop = As<For>(s))
    return static_cast<double>(loop->extent) * StmtFlops(loop->body);
  if (const If* branch = As<If>(s)) return StmtFlops(branch->body);
  if (const Alloc* alloc = As<Alloc>(s)) return StmtFlops(alloc->body);
  if (const Store* store = As<Store>(s)) return ExprFlops(store->value);
  if (const Block* block = As<Block>(s)) {
    double combine = block->reducer && IsFloat(block->store.buffer->dtype) ? 1 : 0;
    return ExprFlops(block->store.value) + combine;
  }
  double sum = 0;
  if (const Seq* seq = As<Seq>(s)) {
    for (const Stmt& child : seq->stmts) sum += StmtFlops(child);
  }
  return sum;
}

}  // namespace

double CountFlops(const Program& program) { return StmtFlops(program.body); }

}  // namespace heddle::ir
