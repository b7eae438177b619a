#include "compiler/pass/lift_lane_buffers.h"

#include "compiler/ir/visit.h"

namespace heddle::pass {

using namespace ir;

namespace {

// The body without its allocations. Accesses of buffers in `widened` get the lane as last index.
Stmt AddLane(const Stmt& body, const BufferMap& widened, const Expr& lane) {
  const Stmt wide =
      MapElements(body, [&](const BufferRef& buffer, const std::vector<Expr>& indices) {
        std::optional<Element> element;
        const auto it = widened.find(buffer.get());
        if (it == widened.end()) return element;
        element = {it->second, indices};
        element->indices.push_back(lane);
        return element;
      });
  return RewriteStmt(wide, [](const Stmt& s) {
    const Alloc* alloc = As<Alloc>(s);
    return alloc ? alloc->body : s;
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
