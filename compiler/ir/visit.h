// Walking and rewriting programs. Everything is functional: a rewrite returns new nodes and shares
// what it did not change.
#pragma once

#include <functional>
#include <unordered_map>
#include <vector>

#include "compiler/ir/ir.h"

namespace heddle::ir {

// Calls `fn` on every expression node, parents before children.
void VisitExpr(const Expr& e, const std::function<void(const Expr&)>& fn);
// Calls `fn` on every statement, parents before children; return false from `fn` to skip the
// children.
void VisitStmt(const Stmt& s, const std::function<bool(const Stmt&)>& fn);
// Calls `fn` on every top-level expression a statement tree holds (bindings, guards, indices,
// values).
void VisitStmtExprs(const Stmt& s, const std::function<void(const Expr&)>& fn);

// Rebuilds bottom-up: `fn` sees each node with children already rewritten and returns its
// replacement (or the node).
Expr RewriteExpr(const Expr& e, const std::function<Expr(const Expr&)>& fn);
// Likewise for statements; `stmt_fn` may return null to delete a statement. `expr_fn` (optional)
// rewrites each top-level expression.
Stmt RewriteStmt(const Stmt& s, const std::function<Stmt(const Stmt&)>& stmt_fn,
                 const std::function<Expr(const Expr&)>& expr_fn = nullptr);

using Substitution = std::unordered_map<const Var*, Expr>;
Expr Substitute(const Expr& e, const Substitution& map);
Stmt Substitute(const Stmt& s, const Substitution& map);
using BufferMap = std::unordered_map<const Buffer*, BufferRef>;
Stmt ReplaceBuffers(const Stmt& s, const BufferMap& map);
Expr ReplaceBuffers(const Expr& e, const BufferMap& map);

// Whether the statement stores to shared memory.
bool StoresShared(const Stmt& s);

// Variables that occur in an expression.
std::vector<VarRef> FreeVars(const Expr& e);
bool UsesVar(const Expr& e, const Var* var);

// Number of arithmetic float operations one execution of the program performs (multiply-add counts
// two; loads, index arithmetic, selects and casts none; exp, sqrt and the like count one).
double CountFlops(const Program& program);

}  // namespace heddle::ir
