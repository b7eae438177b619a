#include "compiler/pass/pad_shared.h"

#include <memory>

#include "compiler/ir/visit.h"

namespace heddle::pass {

using namespace ir;

namespace {

constexpr int64_t kPiece = 16;  // bytes that a thread reads or copies at a time

// The buffer with longer rows; null if they are good as they are.
BufferRef Padded(const Buffer& buffer) {
  if (buffer.scope != Scope::kShared || buffer.shape.size() < 2) return nullptr;
  const int64_t row = buffer.shape.back() * SizeOf(buffer.dtype);
  if (row % (2 * kPiece) != 0) return nullptr;
  auto padded = std::make_shared<Buffer>(buffer);
  padded->shape.back() += kPiece / SizeOf(buffer.dtype);
  return padded;
}

}  // namespace

Program PadShared(const Program& program) {
  BufferMap map;
  VisitStmt(program.body, [&](const Stmt& s) {
    const For* loop = As<For>(s);
    if (loop == nullptr || loop->kind != LoopKind::kTensor) return true;
    VisitStmtExprs(loop->body, [&](const Expr& e) {
      VisitExpr(e, [&](const Expr& x) {
        if (x->kind != ExprKind::kLoad || map.count(x->buffer.get())) return;
        if (BufferRef padded = Padded(*x->buffer)) map[x->buffer.get()] = std::move(padded);
      });
    });
    return true;
  });
  if (map.empty()) return program;
  Program result = program;
  result.body = ReplaceBuffers(program.body, map);
  return result;
}

}  // namespace heddle::pass
