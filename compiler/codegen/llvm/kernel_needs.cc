#include "compiler/codegen/llvm/kernel_needs.h"

#include <unordered_set>

#include "absl/strings/str_cat.h"
#include "compiler/ir/visit.h"

namespace heddle::codegen {

using ir::As;
using ir::BufferRef;
using ir::Stmt;

Needs CollectNeeds(const Stmt& s, const WorkspacePlan& plan) {
  Needs needs;
  std::unordered_set<const void*> bound, seen;
  VisitStmt(s, [&](const Stmt& x) {
    if (auto* loop = As<ir::For>(x)) bound.insert(loop->var.get());
    if (auto* alloc = As<ir::Alloc>(x)) {
      const ir::Buffer* buffer = alloc->buffer.get();
      bound.insert(buffer);
      if (plan.placements.at(buffer).place == Place::kWorkspacePerWorker)
        needs.slices.push_back(alloc->buffer);
    }
    return true;
  });
  auto use_buffer = [&](const BufferRef& b) {
    if (!bound.count(b.get()) && seen.insert(b.get()).second) needs.buffers.push_back(b);
  };
  VisitStmt(s, [&](const Stmt& x) {
    if (auto* store = As<ir::Store>(x)) use_buffer(store->buffer);
    return true;
  });
  VisitStmtExprs(s, [&](const ir::Expr& e) {
    VisitExpr(e, [&](const ir::Expr& x) {
      if (x->kind == ir::ExprKind::kLoad) use_buffer(x->buffer);
      if (x->kind == ir::ExprKind::kVar && !bound.count(x->var.get()) &&
          seen.insert(x->var.get()).second) {
        needs.vars.push_back(x->var);
      }
    });
  });
  return needs;
}

absl::Status CheckSupported(const ir::Program& program) {
  absl::Status status = absl::OkStatus();
  VisitStmtExprs(program.body, [&](const ir::Expr& e) {
    VisitExpr(e, [&](const ir::Expr& x) {
      if (x->kind != ir::ExprKind::kOp || x->op != ir::Op::kTf32) return;
      status = absl::UnimplementedError(
          absl::StrCat("program ", program.name, ": a value is tf32, which a CPU does not have"));
    });
  });
  VisitStmt(program.body, [&](const Stmt& s) {
    if (auto* loop = As<ir::For>(s)) {
      if (IsGpuBlock(loop->kind) || IsGpuThread(loop->kind) ||
          loop->kind == ir::LoopKind::kVThread || loop->kind == ir::LoopKind::kTensor) {
        status = absl::UnimplementedError(absl::StrCat("program ", program.name, ": loop ",
                                                       loop->var->name,
                                                       " is bound to a GPU axis; a CPU has none"));
      }
    }
    if (As<ir::Barrier>(s))
      status = absl::UnimplementedError("a barrier needs a GPU block; a CPU has none");
    if (auto* alloc = As<ir::Alloc>(s); alloc && alloc->buffer->scope == ir::Scope::kShared) {
      status = absl::UnimplementedError(
          absl::StrCat("shared buffer ", alloc->buffer->name, " needs a GPU"));
    }
    if (auto* block = As<ir::Block>(s)) {
      status =
          absl::FailedPreconditionError(absl::StrCat("block ", block->name, " is not lowered"));
    }
    return true;
  });
  return status;
}

}  // namespace heddle::codegen
