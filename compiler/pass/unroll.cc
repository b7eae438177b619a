#include "compiler/pass/unroll.h"

#include "compiler/ir/analysis/simplify.h"
#include "compiler/ir/visit.h"
#include "compiler/pass/fresh_names.h"

namespace heddle::pass {

using namespace ir;

namespace {

int64_t CountStores(const Stmt& s) {
  int64_t stores = 0;
  VisitStmt(s, [&](const Stmt& x) {
    stores += As<Store>(x) != nullptr;
    return true;
  });
  return stores;
}

}  // namespace

Program Unroll(const Program& program) {
  FreshNames names(program);
  Program result = program;
  result.body = RewriteStmt(program.body, [&](const Stmt& s) -> Stmt {
    auto* loop = As<For>(s);
    if (!loop || loop->kind != LoopKind::kUnrolled) return s;
    if (CountStores(loop->body) * loop->extent > kMaxUnrolledStores) {
      return MakeStmt(For{loop->var, loop->extent, LoopKind::kSerial, loop->body});
    }
    std::vector<Stmt> copies;
    for (int64_t i = 0; i < loop->extent; ++i) {
      Stmt copy = Substitute(loop->body, {{loop->var.get(), Int(i)}});
      copies.push_back(i == 0 ? copy : names.Clone(copy));
    }
    return MakeSeq(std::move(copies));
  });
  result.body = ir::Simplify(result.body, /*keep_loops=*/false);
  return result;
}

}  // namespace heddle::pass
