#include "compiler/pass/widen_halves.h"

#include <unordered_set>

#include "compiler/ir/visit.h"

namespace heddle::pass {

namespace {

using ir::DType;
using ir::Expr;
using ir::ExprKind;
using ir::Stmt;

class HalfWidener {
 public:
  Stmt Run(const Stmt& s) {
    ir::VisitStmt(s, [&](const Stmt& x) {
      const auto* alloc = ir::As<ir::Alloc>(x);
      if (alloc == nullptr || !ir::IsHalf(alloc->buffer->dtype)) return true;
      auto wide = std::make_shared<ir::Buffer>(*alloc->buffer);
      wide->dtype = DType::kF32;
      wide_.insert(wide.get());
      map_[alloc->buffer.get()] = std::move(wide);
      return true;
    });
    if (map_.empty()) return s;
    return ir::RewriteStmt(
        s, [&](const Stmt& x) { return Rewrite(x); }, [&](const Expr& e) { return Rewrite(e); });
  }

 private:
  // A value that was read from a widened buffer, without the rounding that changes nothing.
  Expr Unrounded(const Expr& e) const {
    const bool rounded =
        e->kind == ExprKind::kCast && ir::IsHalf(e->dtype) && e->args[0]->kind == ExprKind::kLoad;
    return rounded && wide_.count(e->args[0]->buffer.get()) ? e->args[0] : nullptr;
  }

  Expr Rewrite(const Expr& root) const {
    return ir::RewriteExpr(root, [&](const Expr& e) -> Expr {
      if (e->kind == ExprKind::kLoad) {
        const auto found = map_.find(e->buffer.get());
        return found == map_.end() ? e : ir::Cast(e->dtype, ir::Load(found->second, e->args));
      }
      if (e->kind != ExprKind::kCast || ir::IsHalf(e->dtype)) return e;
      const Expr read = Unrounded(e->args[0]);
      return read ? ir::Cast(e->dtype, read) : e;
    });
  }

  Stmt Rewrite(const Stmt& s) const {
    if (const auto* alloc = ir::As<ir::Alloc>(s)) {
      const auto found = map_.find(alloc->buffer.get());
      return found == map_.end() ? s : ir::MakeStmt(ir::Alloc{found->second, alloc->body});
    }
    const auto* store = ir::As<ir::Store>(s);
    if (store == nullptr) return s;
    const auto found = map_.find(store->buffer.get());
    if (found == map_.end()) return s;
    const Expr read = Unrounded(store->value);
    return ir::MakeStmt(ir::Store{found->second, store->indices,
                                  read ? read : ir::Cast(DType::kF32, store->value)});
  }

  ir::BufferMap map_;                           // to the buffers of f32
  std::unordered_set<const ir::Buffer*> wide_;  // these buffers
};

}  // namespace

ir::Program WidenHalves(const ir::Program& program) {
  ir::Program result = program;
  result.body = HalfWidener().Run(program.body);
  return result;
}

}  // namespace heddle::pass
