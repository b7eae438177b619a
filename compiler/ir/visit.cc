// Walks and rewrites. The functions above "Whole trees", and AnyChild in the header, are the only
// ones that list the kinds of nodes; std::visit makes the compiler ask for each kind.
#include "compiler/ir/visit.h"

#include <cstddef>
#include <unordered_set>
#include <utility>

#include "absl/container/inlined_vector.h"

namespace heddle::ir {

using visit_internal::Overloaded;

namespace {

void ForEachExprOf(const Store& store, absl::FunctionRef<void(const Expr&)> fn) {
  for (const Expr& index : store.indices) fn(index);
  fn(store.value);
}

// Most of what a rewrite visits stays. So the functions below say by null, or nullopt, that a node
// stays as it is, and copy nothing then. Their `fn` does the same.

template <typename F>
Expr NewOrNull(const Expr& e, const F& fn) {
  return e ? fn(e) : nullptr;
}

template <typename F>
std::optional<Store> NewStore(const Store& store, const F& fn) {
  std::optional<std::vector<Expr>> indices;
  for (size_t k = 0; k < store.indices.size(); ++k) {
    Expr index = fn(store.indices[k]);
    if (!index) continue;
    if (!indices) indices = store.indices;
    (*indices)[k] = std::move(index);
  }
  Expr value = fn(store.value);
  if (!indices && !value) return std::nullopt;
  return Store{store.buffer, indices ? *std::move(indices) : store.indices,
               value ? std::move(value) : store.value};
}

template <typename F>
Stmt NewBlock(const Block& block, const F& fn) {
  absl::InlinedVector<Expr, 8> bindings;
  bool changed = false;
  for (const BlockIter& iter : block.iters)
    changed |= bindings.emplace_back(fn(iter.binding)) != nullptr;
  Expr where = NewOrNull(block.where, fn);
  Expr init = block.reducer ? NewOrNull(block.reducer->init, fn) : nullptr;
  std::optional<Store> store = NewStore(block.store, fn);
  if (!changed && !where && !init && !store) return nullptr;
  Block result{block.name,
               {},
               where ? std::move(where) : block.where,
               block.reducer,
               store ? *std::move(store) : block.store};
  result.iters.reserve(block.iters.size());
  for (size_t k = 0; k < block.iters.size(); ++k) {
    const BlockIter& iter = block.iters[k];
    result.iters.push_back(
        {iter.var, iter.extent, iter.kind, bindings[k] ? std::move(bindings[k]) : iter.binding});
  }
  if (init) result.reducer->init = std::move(init);
  return MakeStmt(std::move(result));
}

// MapExprs, or null if all expressions of the statement stay.
template <typename F>
Stmt NewExprs(const Stmt& s, const F& fn) {
  const auto stays = [](const auto&) { return Stmt(); };
  return std::visit(
      Overloaded{[&](const If& branch) {
                   Expr condition = fn(branch.condition);
                   return condition ? MakeStmt(If{std::move(condition), branch.body}) : nullptr;
                 },
                 [&](const Store& store) {
                   std::optional<Store> made = NewStore(store, fn);
                   return made ? MakeStmt(*std::move(made)) : nullptr;
                 },
                 [&](const Block& block) { return NewBlock(block, fn); },
                 [&](const Prefetch& prefetch) {
                   Expr element = fn(prefetch.element);
                   return element ? MakeStmt(Prefetch{std::move(element)}) : nullptr;
                 },
                 [&](const For& loop) { return stays(loop); },
                 [&](const Seq& seq) { return stays(seq); },
                 [&](const Alloc& alloc) { return stays(alloc); },
                 [&](const Barrier& barrier) { return stays(barrier); }},
      s->AsVariant());
}

Stmt WithBody(const For& loop, Stmt body) {
  return MakeStmt(For{loop.var, loop.extent, loop.kind, std::move(body)});
}
Stmt WithBody(const If& branch, Stmt body) {
  return MakeStmt(If{branch.condition, std::move(body)});
}
Stmt WithBody(const Alloc& alloc, Stmt body) {
  return MakeStmt(Alloc{alloc.buffer, std::move(body)});
}

// The statement `s` with its body mapped by `fn`. `node` is the content of `s`.
template <typename T>
Stmt MapBody(const Stmt& s, const T& node, absl::FunctionRef<Stmt(const Stmt&)> fn) {
  Stmt body = fn(node.body);
  if (!body || body == node.body) return body ? s : nullptr;
  return WithBody(node, std::move(body));
}

Stmt MapStmts(const Stmt& s, const Seq& seq, absl::FunctionRef<Stmt(const Stmt&)> fn) {
  std::vector<Stmt> stmts;
  stmts.reserve(seq.stmts.size());
  bool changed = false;
  for (const Stmt& child : seq.stmts) {
    Stmt result = fn(child);
    changed |= result != child;
    if (result) stmts.push_back(std::move(result));
  }
  if (!changed) return s;
  return stmts.empty() ? nullptr : MakeSeq(std::move(stmts));
}

// `e` with other children. The constructors fold constants.
Expr WithChildren(const Expr& e, std::vector<Expr> args) {
  if (e->kind == ExprKind::kOp) return Make(e->op, std::move(args));
  if (e->kind == ExprKind::kCast) return Cast(e->dtype, std::move(args[0]));
  return Load(e->buffer, std::move(args));
}

// `e` with its children mapped by `fn`, which returns null for a child that stays; null if all
// stay. So the parts that a rewrite does not change, which are most, cost nothing.
template <typename F>
Expr NewChildren(const Expr& e, const F& fn) {
  const std::vector<Expr>& old = e->args;
  size_t k = 0;
  Expr first;
  while (k < old.size() && !(first = fn(old[k]))) ++k;
  if (k == old.size()) return nullptr;
  std::vector<Expr> args;
  args.reserve(old.size());
  args.assign(old.begin(), old.begin() + static_cast<std::ptrdiff_t>(k));
  args.push_back(std::move(first));
  for (++k; k < old.size(); ++k) {
    Expr arg = fn(old[k]);
    args.push_back(arg ? std::move(arg) : old[k]);
  }
  return WithChildren(e, std::move(args));
}

}  // namespace

void ForEachChild(const Expr& e, absl::FunctionRef<void(const Expr&)> fn) {
  for (const Expr& a : e->args) fn(a);
}

void ForEachChild(const Stmt& s, absl::FunctionRef<void(const Stmt&)> fn) {
  AnyChild(s, [&](const Stmt& child) {
    fn(child);
    return false;
  });
}

void ForEachExpr(const Stmt& s, absl::FunctionRef<void(const Expr&)> fn) {
  std::visit(Overloaded{[&](const If& branch) { fn(branch.condition); },
                        [&](const Store& store) { ForEachExprOf(store, fn); },
                        [&](const Block& block) {
                          for (const BlockIter& iter : block.iters) fn(iter.binding);
                          if (block.where) fn(block.where);
                          if (block.reducer && block.reducer->init) fn(block.reducer->init);
                          ForEachExprOf(block.store, fn);
                        },
                        [&](const Prefetch& prefetch) { fn(prefetch.element); }, [](const For&) {},
                        [](const Seq&) {}, [](const Alloc&) {}, [](const Barrier&) {}},
             s->AsVariant());
}

Expr MapChildren(const Expr& e, absl::FunctionRef<Expr(const Expr&)> fn) {
  Expr result = NewChildren(e, [&](const Expr& child) {
    Expr mapped = fn(child);
    return mapped == child ? nullptr : mapped;
  });
  return result ? result : e;
}

Stmt MapChildren(const Stmt& s, absl::FunctionRef<Stmt(const Stmt&)> fn) {
  return std::visit(
      Overloaded{[&](const For& loop) { return MapBody(s, loop, fn); },
                 [&](const If& branch) { return MapBody(s, branch, fn); },
                 [&](const Alloc& alloc) { return MapBody(s, alloc, fn); },
                 [&](const Seq& seq) { return MapStmts(s, seq, fn); },
                 [&](const Block&) { return s; }, [&](const Store&) { return s; },
                 [&](const Barrier&) { return s; }, [&](const Prefetch&) { return s; }},
      s->AsVariant());
}

Stmt MapExprs(const Stmt& s, absl::FunctionRef<Expr(const Expr&)> fn) {
  Stmt result = NewExprs(s, [&](const Expr& e) {
    Expr mapped = fn(e);
    return mapped == e ? nullptr : mapped;
  });
  return result ? result : s;
}

// ---- Whole trees ----

void VisitExpr(const Expr& e, absl::FunctionRef<void(const Expr&)> fn) {
  fn(e);
  for (const Expr& a : e->args) VisitExpr(a, fn);
}

void VisitStmt(const Stmt& s, absl::FunctionRef<bool(const Stmt&)> fn) {
  if (!fn(s)) return;
  ForEachChild(s, [&](const Stmt& child) { VisitStmt(child, fn); });
}

void VisitStmtExprs(const Stmt& s, absl::FunctionRef<void(const Expr&)> fn) {
  ForEachExpr(s, fn);
  ForEachChild(s, [&](const Stmt& child) { VisitStmtExprs(child, fn); });
}

void VisitLoads(const Expr& e, absl::FunctionRef<void(const Expr&)> fn) {
  if (e->kind == ExprKind::kLoad) fn(e);
  for (const Expr& a : e->args) VisitLoads(a, fn);
}

void VisitLoads(const Stmt& s, absl::FunctionRef<void(const Expr&)> fn) {
  VisitStmtExprs(s, [&](const Expr& e) { VisitLoads(e, fn); });
}

bool Any(const Expr& e, absl::FunctionRef<bool(const Expr&)> is) {
  if (is(e)) return true;
  for (const Expr& a : e->args) {
    if (Any(a, is)) return true;
  }
  return false;
}

bool Any(const Stmt& s, absl::FunctionRef<bool(const Stmt&)> is) {
  bool found = false;
  VisitStmt(s, [&](const Stmt& node) {
    found = found || is(node);
    return !found;
  });
  return found;
}

namespace {

// Rebuilds bottom-up with what `fn` makes of a node. A null, from it or as the result, means that
// the node stays.
template <typename F>
Expr Rebuilt(const Expr& e, const F& fn) {
  Expr made = NewChildren(e, [&](const Expr& child) { return Rebuilt(child, fn); });
  if (!made) return fn(e);
  Expr result = fn(made);
  return result ? result : made;
}

}  // namespace

Expr RewriteExpr(const Expr& e, absl::FunctionRef<Expr(const Expr&)> fn) {
  Expr result = Rebuilt(e, [&](const Expr& node) {
    Expr rewritten = fn(node);
    return rewritten == node ? nullptr : rewritten;
  });
  return result ? result : e;
}

Stmt RewriteStmt(const Stmt& s, absl::FunctionRef<Stmt(const Stmt&)> stmt_fn) {
  Stmt result = MapChildren(s, [&](const Stmt& child) { return RewriteStmt(child, stmt_fn); });
  return result ? stmt_fn(result) : nullptr;
}

Stmt RewriteStmt(const Stmt& s, absl::FunctionRef<Stmt(const Stmt&)> stmt_fn,
                 absl::FunctionRef<Expr(const Expr&)> expr_fn) {
  Stmt result = MapChildren(MapExprs(s, expr_fn), [&](const Stmt& child) {
    return RewriteStmt(child, stmt_fn, expr_fn);
  });
  return result ? stmt_fn(result) : nullptr;
}

// ---- Common rewrites ----

namespace {

// Null: the expression stays.
Expr Substituted(const Expr& e, const Substitution& map) {
  return Rebuilt(e, [&](const Expr& node) -> Expr {
    if (node->kind != ExprKind::kVar) return nullptr;
    auto it = map.find(node->var.get());
    return it == map.end() ? nullptr : it->second;
  });
}

Expr WithElements(const Expr& e, ElementMap fn) {
  return Rebuilt(e, [&](const Expr& node) -> Expr {
    if (node->kind != ExprKind::kLoad) return nullptr;
    std::optional<Element> to = fn(node->buffer, node->args);
    return to ? Load(std::move(to->buffer), std::move(to->indices)) : nullptr;
  });
}

}  // namespace

Expr Substitute(const Expr& e, const Substitution& map) {
  Expr result = Substituted(e, map);
  return result ? result : e;
}

Stmt Substitute(const Stmt& s, const Substitution& map) {
  const Stmt made = NewExprs(s, [&](const Expr& e) { return Substituted(e, map); });
  return MapChildren(made ? made : s, [&](const Stmt& child) { return Substitute(child, map); });
}

Expr MapElements(const Expr& e, ElementMap fn) {
  Expr result = WithElements(e, fn);
  return result ? result : e;
}

Stmt MapElements(const Stmt& s, ElementMap fn) {
  const Stmt made = NewExprs(s, [&](const Expr& e) { return WithElements(e, fn); });
  const Stmt& loaded = made ? made : s;
  const auto stored = [&](const Store& store) -> std::optional<Store> {
    std::optional<Element> to = fn(store.buffer, store.indices);
    if (!to) return std::nullopt;
    return Store{std::move(to->buffer), std::move(to->indices), store.value};
  };
  if (const Store* store = As<Store>(loaded)) {
    std::optional<Store> result = stored(*store);
    return result ? MakeStmt(*std::move(result)) : loaded;
  }
  if (const Block* block = As<Block>(loaded)) {
    std::optional<Store> result = stored(block->store);
    if (!result) return loaded;
    return MakeStmt(
        Block{block->name, block->iters, block->where, block->reducer, *std::move(result)});
  }
  return MapChildren(loaded, [&](const Stmt& child) { return MapElements(child, fn); });
}

namespace {

std::optional<Element> InReplaced(const BufferMap& map, const BufferRef& buffer,
                                  const std::vector<Expr>& indices) {
  const auto it = map.find(buffer.get());
  if (it == map.end()) return std::nullopt;
  return Element{it->second, indices};
}

}  // namespace

Expr ReplaceBuffers(const Expr& e, const BufferMap& map) {
  return MapElements(
      e, [&](const BufferRef& b, const std::vector<Expr>& i) { return InReplaced(map, b, i); });
}

Stmt ReplaceBuffers(const Stmt& s, const BufferMap& map) {
  const Stmt moved = MapElements(
      s, [&](const BufferRef& b, const std::vector<Expr>& i) { return InReplaced(map, b, i); });
  return RewriteStmt(moved, [&](const Stmt& node) {
    const Alloc* alloc = As<Alloc>(node);
    const auto it = alloc == nullptr ? map.end() : map.find(alloc->buffer.get());
    return it == map.end() ? node : MakeStmt(Alloc{it->second, alloc->body});
  });
}

// ---- Common questions ----

const Buffer* WrittenBuffer(const Stmt& s) {
  if (const Store* store = As<Store>(s)) return store->buffer.get();
  if (const Block* block = As<Block>(s)) return block->store.buffer.get();
  return nullptr;
}

bool StoresShared(const Stmt& s) {
  return Any(s, [](const Stmt& node) {
    const Buffer* written = WrittenBuffer(node);
    return written != nullptr && written->scope == Scope::kShared;
  });
}

bool HasLoad(const Expr& e) {
  return Any(e, [](const Expr& node) { return node->kind == ExprKind::kLoad; });
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
  double flops = 0;
  if (const Store* store = As<Store>(s)) flops = ExprFlops(store->value);
  if (const Block* block = As<Block>(s)) {
    const bool combines = block->reducer && IsFloat(block->store.buffer->dtype);
    flops = ExprFlops(block->store.value) + (combines ? 1 : 0);
  }
  ForEachChild(s, [&](const Stmt& child) { flops += StmtFlops(child); });
  const For* loop = As<For>(s);
  return loop == nullptr ? flops : flops * static_cast<double>(loop->extent);
}

}  // namespace

double CountFlops(const Program& program) { return StmtFlops(program.body); }

}  // namespace heddle::ir
