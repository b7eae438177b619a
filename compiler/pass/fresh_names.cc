#include "compiler/pass/fresh_names.h"

#include "compiler/ir/visit.h"

namespace heddle::pass {

using namespace ir;

FreshNames::FreshNames(const Program& program) {
  for (const BufferRef& b : program.inputs) used_.insert(b->name);
  for (const BufferRef& b : program.outputs) used_.insert(b->name);
  VisitStmt(program.body, [&](const Stmt& s) {
    if (auto* loop = As<For>(s)) used_.insert(loop->var->name);
    if (auto* alloc = As<Alloc>(s)) used_.insert(alloc->buffer->name);
    if (auto* block = As<Block>(s)) {
      used_.insert(block->name);
      for (const BlockIter& iter : block->iters) used_.insert(iter.var->name);
    }
    return true;
  });
}

std::string FreshNames::Make(const std::string& base) {
  if (used_.insert(base).second) return base;
  int& suffix = next_suffix_[base];
  for (;;) {
    std::string name = base + ".c" + std::to_string(suffix++);
    if (used_.insert(name).second) return name;
  }
}

Stmt FreshNames::Clone(const Stmt& stmt) {
  Substitution vars;
  std::unordered_map<const Var*, VarRef> loops;
  BufferMap buffers;
  VisitStmt(stmt, [&](const Stmt& s) {
    if (auto* loop = As<For>(s)) {
      VarRef fresh = std::make_shared<const Var>(Var{Make(loop->var->name)});
      loops[loop->var.get()] = fresh;
      vars[loop->var.get()] = VarExpr(fresh);
    }
    if (auto* alloc = As<Alloc>(s)) {
      Buffer copy = *alloc->buffer;
      copy.name = Make(copy.name);
      buffers[alloc->buffer.get()] = std::make_shared<const Buffer>(std::move(copy));
    }
    return true;
  });
  if (loops.empty() && buffers.empty()) return stmt;
  const Stmt renamed = RewriteStmt(
      stmt,
      [&](const Stmt& s) {
        auto* loop = As<For>(s);
        if (!loop) return s;
        return MakeStmt(For{loops.at(loop->var.get()), loop->extent, loop->kind, loop->body});
      },
      [&](const Expr& e) { return Substitute(e, vars); });
  return buffers.empty() ? renamed : ReplaceBuffers(renamed, buffers);
}

}  // namespace heddle::pass
