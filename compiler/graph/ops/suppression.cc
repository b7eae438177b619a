// The greedy choice of boxes that overlap little: suppress.
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "compiler/graph/ops/op_util.h"

namespace heddle::graph {
namespace {

using ir::DType;
using ir::Expr;
using ir::Make;
using ir::Op;

// suppress: the operands are boxes f32[R, N, 4] with corners y1, x1, y2, x2 (y1 <= y2, x1 <= x2),
// each row from the best box to the worst; flags bool[R, N], which boxes may be chosen; and a
// threshold f32[]. The result is i32[R, N]: 0 for a chosen box. A box is chosen if it may be, and if
// no box that was chosen before it in its row overlaps it by more than the threshold. The overlap is
// the area of the intersection relative to that of the union; boxes without an area overlap nothing.
//
// Each choice depends on those before it, so the boxes of a row are visited one after the other.
absl::StatusOr<TensorType> InferSuppress(Types in, const OpAttrs&) {
  HEDDLE_RETURN_IF_ERROR(ExpectInputs(in, 3, 3));
  const Shape& boxes = in[0].shape;
  const bool fits = boxes.size() == 3 && boxes[2] == 4 &&
                    in[1].shape == Shape{boxes[0], boxes[1]} && in[2].shape.empty();
  if (!fits || in[0].dtype != DType::kF32 || in[1].dtype != DType::kBool ||
      in[2].dtype != DType::kF32) {
    return BadInput(absl::StrCat("cannot choose among boxes ", ToText(in[0]), " by ", ToText(in[1]),
                                 " and ", ToText(in[2])));
  }
  return TensorType{DType::kI32, in[1].shape};
}

Expr And(std::initializer_list<Expr> conditions) {
  Expr all;
  for (const Expr& condition : conditions) all = all ? ir::And(all, condition) : condition;
  return all;
}

absl::StatusOr<tensor::Tensor> ExpressSuppress(tensor::Builder& b, Tensors in, const OpAttrs&) {
  const tensor::Tensor &boxes = in[0], &flags = in[1], &threshold = in[2];
  const int64_t rows = boxes.shape()[0], count = boxes.shape()[1];
  const Expr zero = Number(0, DType::kF32);
  const Expr chosen = ir::Int(0, DType::kI32), not_chosen = ir::Int(1, DType::kI32);
  return b.Recur(
      "suppress", DType::kI32, {rows, count}, {count}, ir::ReduceOp::kMax,
      [&](tensor::Iters s, tensor::Iters r, const tensor::Tensor& self) {
        const auto corner = [&](const Expr& box, int64_t k) {
          return boxes(s[0], box, ir::Int(k));
        };
        const auto shared = [&](int64_t low, int64_t high) {
          return Make(Op::kMin, {corner(s[1], high), corner(r[0], high)}) -
                 Make(Op::kMax, {corner(s[1], low), corner(r[0], low)});
        };
        const auto area = [&](const Expr& box) {
          return (corner(box, 2) - corner(box, 0)) * (corner(box, 3) - corner(box, 1));
        };
        const Expr height = shared(0, 2), width = shared(1, 3), both = height * width;
        const Expr mine = area(s[1]), other = area(r[0]), either = mine + other - both;
        const Expr overlaps = And({ir::Lt(zero, height), ir::Lt(zero, width), ir::Lt(zero, both),
                                   ir::Lt(zero, mine), ir::Lt(zero, other), ir::Lt(zero, either),
                                   ir::Lt(threshold.At({}), Make(Op::kDiv, {both, either}))});
        const Expr earlier_chosen =
            ir::And(ir::Lt(r[0], s[1]), Make(Op::kEq, {self(s[0], r[0]), chosen}));
        return ir::Select(flags(s[0], s[1]),
                          ir::Select(ir::And(earlier_chosen, overlaps), not_chosen, chosen),
                          not_chosen);
      });
}

}  // namespace

void AppendSuppressionOps(std::vector<OpDef>& ops) {
  ops.push_back(MakeOp(OpKind::kSuppress, FusionClass::kOpaque, InferSuppress, ExpressSuppress));
}

}  // namespace heddle::graph
