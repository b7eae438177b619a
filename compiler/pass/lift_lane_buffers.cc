#include "compiler/pass/lift_lane_buffers.h"

#include "compiler/ir/visit.h"

namespace heddle::pass {

using namespace ir;

namespace {

// One element more per access: that of the lane.
Stmt AddLane(const Stmt& body, const BufferMap& widened, const Expr& lane) {
  auto with_lane = [&](std::vector<Expr> indices) {
    indices.push_back(lane);
    return indices;
  };
  return RewriteStmt(
      body,
      [&](const Stmt& s) -> Stmt {
        if (auto* alloc = As<Alloc>(s)) return alloc->body;
        auto* store = As<Store>(s);
        if (!store || !widened.count(store->buffer.get())) return s;
        return MakeStmt(
            Store{widened.at(store->buffer.get()), with_lane(store->indices), store->value});
      },
      [&](const Expr& e) {
        return RewriteExpr(e, [&](const Expr& x) {
          if (x->kind != ExprKind::kLoad || !widened.count(x->buffer.get())) return x;
          return Load(widened.at(x->buffer.get()), with_lane(x->args));
        });
      });
}

}  // namespace

Program LiftLaneBuffers(const Program& program) {
  Program result = program;
  result.body = RewriteStmt(program.body, [&](const Stmt& s) -> Stmt {
    auto* loop = As<For>(s);
    if (!loop || loop->kind != LoopKind::kVectorized) return s;
    BufferMap widened;
    std::vector<BufferRef> lifted;
    VisitStmt(loop->body, [&](const Stmt& x) {
      if (auto* alloc = As<Alloc>(x)) {
        Buffer wide = *alloc->buffer;
        wide.shape.push_back(loop->extent);
        lifted.push_back(std::make_shared<const Buffer>(std::move(wide)));
        widened[alloc->buffer.get()] = lifted.back();
      }
      return true;
    });
    if (lifted.empty()) return s;
    Stmt lanes = MakeStmt(
        For{loop->var, loop->extent, loop->kind, AddLane(loop->body, widened, VarExpr(loop->var))});
    for (const BufferRef& buffer : lifted) lanes = MakeStmt(Alloc{buffer, lanes});
    return lanes;
  });
  return result;
}

}  // namespace heddle::pass
