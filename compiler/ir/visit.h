// Walking and rewriting programs. A rewrite returns new nodes and shares what it did not change.
//
// Only this file and visit.cc know which children and expressions a node has. A walk handles the
// kinds that mean something to it and leaves the rest to ForEachChild or MapChildren:
//
//   Stmt Run(const Stmt& s) {
//     if (const For* loop = As<For>(s)) return RunLoop(*loop);
//     return MapChildren(s, [&](const Stmt& child) { return Run(child); });
//   }
#pragma once

#include <optional>
#include <string_view>
#include <unordered_map>
#include <variant>
#include <vector>

#include "absl/functional/function_ref.h"
#include "compiler/ir/ir.h"

namespace heddle::ir {

// ---- One level ----

// Calls `fn` on each operand of an operator or cast, or each index of a load.
void ForEachChild(const Expr& e, absl::FunctionRef<void(const Expr&)> fn);
// Calls `fn` on each statement directly inside `s`, in program order.
void ForEachChild(const Stmt& s, absl::FunctionRef<void(const Stmt&)> fn);
// Calls `fn` on each statement directly inside `s`, in program order, until it returns true. Returns
// whether it did. A template, because schedule primitives search whole programs by it.
template <typename F>
bool AnyChild(const Stmt& s, const F& fn);
// Calls `fn` on each expression that `s` itself holds (a binding, guard, index, value or prefetched
// element); not on their operands, and not on those of the statements inside `s`.
void ForEachExpr(const Stmt& s, absl::FunctionRef<void(const Expr&)> fn);

// The node with each child replaced by what `fn` makes of it: the same node if no child changed.
Expr MapChildren(const Expr& e, absl::FunctionRef<Expr(const Expr&)> fn);
// Likewise for statements. A null from `fn` deletes the child. A statement that loses its body, or
// a sequence that loses its last statement, is deleted too: the result is null. What remains of a
// sequence is flattened (MakeSeq).
Stmt MapChildren(const Stmt& s, absl::FunctionRef<Stmt(const Stmt&)> fn);
// The statement with each expression of ForEachExpr replaced by what `fn` makes of it.
Stmt MapExprs(const Stmt& s, absl::FunctionRef<Expr(const Expr&)> fn);

// ---- Whole trees ----

// Calls `fn` on every node of an expression, parents before children.
void VisitExpr(const Expr& e, absl::FunctionRef<void(const Expr&)> fn);
// Calls `fn` on every statement, parents before children. A false from `fn` skips the children.
void VisitStmt(const Stmt& s, absl::FunctionRef<bool(const Stmt&)> fn);
// Calls `fn` on every expression that the statements of a tree hold (ForEachExpr).
void VisitStmtExprs(const Stmt& s, absl::FunctionRef<void(const Expr&)> fn);
// Calls `fn` on every load, outer loads before those in their indices.
void VisitLoads(const Expr& e, absl::FunctionRef<void(const Expr&)> fn);
void VisitLoads(const Stmt& s, absl::FunctionRef<void(const Expr&)> fn);

// Whether some node or statement of the tree satisfies `is`.
bool Any(const Expr& e, absl::FunctionRef<bool(const Expr&)> is);
bool Any(const Stmt& s, absl::FunctionRef<bool(const Stmt&)> is);

// Rebuilds bottom-up: `fn` sees each node with its children already rewritten and returns the node
// or its replacement.
Expr RewriteExpr(const Expr& e, absl::FunctionRef<Expr(const Expr&)> fn);
// Likewise for statements. A null from `stmt_fn` deletes the statement, as in MapChildren.
// `expr_fn` rewrites the expressions of each statement (MapExprs) before `stmt_fn` sees it.
Stmt RewriteStmt(const Stmt& s, absl::FunctionRef<Stmt(const Stmt&)> stmt_fn);
Stmt RewriteStmt(const Stmt& s, absl::FunctionRef<Stmt(const Stmt&)> stmt_fn,
                 absl::FunctionRef<Expr(const Expr&)> expr_fn);

// ---- Common rewrites ----

using Substitution = std::unordered_map<const Var*, Expr>;
Expr Substitute(const Expr& e, const Substitution& map);
Stmt Substitute(const Stmt& s, const Substitution& map);

// The element that a load or store accesses.
struct Element {
  BufferRef buffer;
  std::vector<Expr> indices;
};
// Redirects loads and stores: `fn` maps each to its new element, or to nullopt to leave it alone.
using ElementMap = absl::FunctionRef<std::optional<Element>(const BufferRef& buffer,
                                                            const std::vector<Expr>& indices)>;
Expr MapElements(const Expr& e, ElementMap fn);
Stmt MapElements(const Stmt& s, ElementMap fn);

// Replaces buffers where they are loaded, stored and allocated; indices stay.
using BufferMap = std::unordered_map<const Buffer*, BufferRef>;
Expr ReplaceBuffers(const Expr& e, const BufferMap& map);
Stmt ReplaceBuffers(const Stmt& s, const BufferMap& map);

// ---- Common questions ----

// The buffer that a store or a block writes; null for other statements.
const Buffer* WrittenBuffer(const Stmt& s);
// Whether a statement of the tree stores to shared memory.
bool StoresShared(const Stmt& s);
bool HasLoad(const Expr& e);
// Variables of an expression, each once, in order of first appearance.
std::vector<VarRef> FreeVars(const Expr& e);
bool UsesVar(const Expr& e, const Var* var);

// Number of arithmetic float operations that one execution of the program performs. A multiply-add
// counts two; exp, sqrt and the like count one; loads, index arithmetic, selects and casts none.
double CountFlops(const Program& program);

// Ends the names of programs that are timed with warm code and constants (measure/measure.h). So their workloads have keys of
// their own. Databases also hold times under names with "_warm", which were taken otherwise and do not compare.
inline constexpr std::string_view kTimedWarm = "_timed_warm";
inline bool IsTimedWarm(const Program& program) { return program.name.ends_with(kTimedWarm); }

// ---- Implementation ----

namespace visit_internal {

template <typename... F>
struct Overloaded : F... {
  using F::operator()...;
};
template <typename... F>
Overloaded(F...) -> Overloaded<F...>;

}  // namespace visit_internal

template <typename F>
bool AnyChild(const Stmt& s, const F& fn) {
  return std::visit(visit_internal::Overloaded{[&](const For& loop) { return fn(loop.body); },
                                               [&](const If& branch) { return fn(branch.body); },
                                               [&](const Alloc& alloc) { return fn(alloc.body); },
                                               [&](const Seq& seq) {
                                                 for (const Stmt& child : seq.stmts) {
                                                   if (fn(child)) return true;
                                                 }
                                                 return false;
                                               },
                                               [](const Block&) { return false; },
                                               [](const Store&) { return false; },
                                               [](const Barrier&) { return false; },
                                               [](const Prefetch&) { return false; }},
                    s->AsVariant());
}

}  // namespace heddle::ir
