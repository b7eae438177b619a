// Primitives for tensor cores.
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "compiler/ir/analysis/analyzer.h"
#include "compiler/ir/analysis/tensor_product.h"
#include "compiler/schedule/primitives/primitives.h"
#include "compiler/schedule/tree.h"

namespace heddle::schedule {

using ir::As;
using ir::Block;
using ir::Expr;
using ir::For;
using ir::LoopKind;
using ir::Stmt;

absl::StatusOr<Rewritten> Tf32(const Program& p, const std::string& block_name) {
  HEDDLE_ASSIGN_OR_RETURN(const Path path, FindBlock(p.body, block_name));
  Block block = path.block();
  const Expr& value = block.store.value;
  const auto is_single = [](const Expr& e) {
    return e->kind == ir::ExprKind::kLoad && e->dtype == ir::DType::kF32;
  };
  const bool fits = block.reducer && block.reducer->op == ir::ReduceOp::kSum &&
                    value->kind == ir::ExprKind::kOp && value->op == ir::Op::kMul &&
                    is_single(value->args[0]) && is_single(value->args[1]);
  if (!fits) return Illegal(block, "is no sum of products of two f32 elements");
  block.store.value = ir::Make(ir::Op::kMul, ir::Make(ir::Op::kTf32, {value->args[0]}),
                               ir::Make(ir::Op::kTf32, {value->args[1]}));
  return Program{p.name, p.inputs, p.outputs, ReplaceTarget(path, ir::MakeStmt(std::move(block)))};
}

absl::StatusOr<Rewritten> Tensorize(const Program& p, const std::string& loop_name) {
  HEDDLE_ASSIGN_OR_RETURN(const Path path, FindLoop(p.body, loop_name));
  const For& loop = path.loop();
  const auto refused = [&](const std::string& why) {
    return absl::FailedPreconditionError(
        absl::StrCat("loop ", Quoted(loop_name), " is no product of tensor cores: ", why));
  };
  if (loop.kind != LoopKind::kSerial && loop.kind != LoopKind::kUnrolled)
    return refused("its kind is set already");
  ir::Analyzer analyzer;
  const For* thread = nullptr;
  for (const For* outer : path.Loops()) {
    analyzer.Bind(outer->var.get(), {0, outer->extent - 1});
    if (outer->kind == LoopKind::kThreadX) thread = outer;
    if (outer->kind == LoopKind::kVectorized || outer->kind == LoopKind::kThreadY ||
        outer->kind == LoopKind::kThreadZ)
      return refused(absl::StrCat("it is inside of loop ", Quoted(outer->var->name)));
  }
  if (thread == nullptr) return refused("no loop around it is bound to threadIdx.x");
  const auto product = ir::MatchTensorProduct(loop, *thread, analyzer);
  if (!product.ok()) return refused(std::string(product.status().message()));
  Stmt marked = ir::MakeStmt(For{loop.var, loop.extent, LoopKind::kTensor, loop.body});
  return Program{p.name, p.inputs, p.outputs, ReplaceTarget(path, std::move(marked))};
}

}  // namespace heddle::schedule
