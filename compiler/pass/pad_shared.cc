#include "compiler/pass/pad_shared.h"

#include <memory>
#include <unordered_set>

#include "compiler/ir/analysis/group_product.h"
#include "compiler/ir/visit.h"
#include "compiler/machine/group_products.h"

namespace heddle::pass {

using namespace ir;

namespace {

constexpr int64_t kPiece = 16;  // bytes that a thread reads or copies at a time

constexpr int64_t kGroups = 8;  // groups of four threads in a warp

// The buffer with longer rows; null if its rows need no padding. `words`: its elements are 32-bit
// numbers that are contiguous along rows or columns of the product.
BufferRef Padded(const Buffer& buffer, bool words) {
  if (buffer.scope != Scope::kShared || buffer.shape.size() < 2) return nullptr;
  const int64_t piece = words ? kGroups : kPiece / SizeOf(buffer.dtype);
  if (buffer.shape.back() % (2 * piece) != 0) return nullptr;
  auto padded = std::make_shared<Buffer>(buffer);
  padded->shape.back() += piece;
  return padded;
}

// Whether successive elements of a row belong to successive rows or columns of the product, rather
// than to successive terms.
bool TermsApart(const Expr& load, const For& rows) {
  const For* columns = As<For>(rows.body);
  const For* terms = columns == nullptr ? nullptr : As<For>(columns->body);
  if (terms == nullptr || load->args.empty()) return false;
  const Expr& last = load->args.back();
  return !UsesVar(last, terms->var.get()) &&
         (UsesVar(last, rows.var.get()) || UsesVar(last, columns->var.get()));
}

// The operands of products of four warps.
std::unordered_set<const Buffer*> InPanels(const Stmt& s) {
  Analyzer analyzer;
  std::unordered_set<const Buffer*> buffers;
  VisitStmt(s, [&](const Stmt& node) {
    const For* loop = As<For>(node);
    if (loop == nullptr) return true;
    analyzer.Bind(loop->var.get(), {0, loop->extent - 1});
    if (const auto group = MatchGroupProduct(*loop, analyzer)) {
      buffers.insert(group->product.a->buffer.get());
      buffers.insert(group->product.b->buffer.get());
    }
    return true;
  });
  return buffers;
}

}  // namespace

Program PadShared(const Program& program, const machine::TargetInfo& target) {
  std::unordered_set<const Buffer*> panels;
  if (machine::MakesGroupProducts(target)) panels = InPanels(program.body);
  BufferMap map;
  VisitStmt(program.body, [&](const Stmt& s) {
    const For* loop = As<For>(s);
    if (loop == nullptr || loop->kind != LoopKind::kTensor) return true;
    VisitLoads(loop->body, [&](const Expr& load) {
      const Buffer* buffer = load->buffer.get();
      if (map.count(buffer) || panels.count(buffer)) return;
      const bool words = SizeOf(load->dtype) == 4 && TermsApart(load, *loop);
      if (BufferRef padded = Padded(*buffer, words)) map[buffer] = std::move(padded);
    });
    return true;
  });
  if (map.empty()) return program;
  Program result = program;
  result.body = ReplaceBuffers(program.body, map);
  return result;
}

}  // namespace heddle::pass
