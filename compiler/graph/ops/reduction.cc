// Reductions over axes, arg-max, running sums.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "compiler/graph/ops/op_util.h"

namespace heddle::graph {
namespace {

using ir::DType;
using ir::Expr;
using ir::Make;
using ir::Op;
using ir::ReduceOp;

struct Reduction {
  std::string_view name;
  ReduceOp op;
  Expr (*before)(const Expr& x);                      // of every element
  Expr (*after)(const Expr& reduced, int64_t count);  // null: nothing
};

Expr Same(const Expr& x) { return x; }
Expr Square(const Expr& x) { return x * x; }
Expr Abs(const Expr& x) { return Make(Op::kAbs, {x}); }
Expr Mean(const Expr& sum, int64_t count) {
  return Make(Op::kDiv, {sum, Number(static_cast<double>(count), sum->dtype)});
}
Expr Sqrt(const Expr& x, int64_t) { return Make(Op::kSqrt, {x}); }
Expr Log(const Expr& x, int64_t) { return Make(Op::kLog, {x}); }

const Reduction kReductions[] = {
    {"reduce_sum", ReduceOp::kSum, Same, nullptr},
    {"reduce_mean", ReduceOp::kSum, Same, Mean},
    {"reduce_max", ReduceOp::kMax, Same, nullptr},
    {"reduce_min", ReduceOp::kMin, Same, nullptr},
    {"reduce_prod", ReduceOp::kProd, Same, nullptr},
    {"reduce_l1", ReduceOp::kSum, Abs, nullptr},
    {"reduce_l2", ReduceOp::kSum, Square, Sqrt},
    {"reduce_sum_square", ReduceOp::kSum, Square, nullptr},
    {"reduce_log_sum", ReduceOp::kSum, Same, Log},
};

absl::StatusOr<std::vector<TensorType>> InferReduction(Types in, const Attrs& attrs) {
  HEDDLE_RETURN_IF_ERROR(ExpectInputs(in, 1, 1));
  if (in[0].dtype == DType::kBool) return BadInput("is not defined on bool");
  HEDDLE_ASSIGN_OR_RETURN(
      Shape axes, NormalizeAxes(IntsAttr(attrs, "axes"), static_cast<int>(in[0].shape.size())));
  if (axes.empty()) return BadInput("reduces over no axis");
  return std::vector{
      TensorType{in[0].dtype, ReducedShape(in[0].shape, axes, IntAttr(attrs, "keepdims", 1) != 0)}};
}

int64_t CountOver(const Shape& shape, const Shape& axes) {
  int64_t count = 1;
  for (int64_t axis : axes) count *= shape[axis];
  return count;
}

OpDef ReductionOp(const Reduction& row) {
  OpDef op{row.name, FusionClass::kReduction};
  op.infer = InferReduction;
  op.express = [row](tensor::Builder& b, Tensors in,
                     const Attrs& attrs) -> absl::StatusOr<std::vector<tensor::Tensor>> {
    const tensor::Tensor& x = in[0];
    HEDDLE_ASSIGN_OR_RETURN(Shape axes, NormalizeAxes(IntsAttr(attrs, "axes"), x.rank()));
    tensor::Tensor y =
        ReduceOver(b, std::string(row.name), x, axes, IntAttr(attrs, "keepdims", 1) != 0, row.op,
                   [&](std::vector<Expr> i) { return row.before(x.At(std::move(i))); });
    if (row.after == nullptr) return std::vector{y};
    const int64_t count = CountOver(x.shape(), axes);
    return std::vector{
        b.Compute(absl::StrCat(absl::string_view(row.name.data(), row.name.size()), "_finish"),
                  y.shape(), [&](tensor::Iters s) {
                    return row.after(y.At({s.begin(), s.end()}), count);
                  })};
  };
  return op;
}

// log(sum(exp(x))), shifted by the maximum so that it neither overflows nor vanishes.
OpDef LogSumExpOp() {
  OpDef op{"reduce_log_sum_exp", FusionClass::kReduction};
  op.infer = InferReduction;
  op.express = [](tensor::Builder& b, Tensors in,
                  const Attrs& attrs) -> absl::StatusOr<std::vector<tensor::Tensor>> {
    const tensor::Tensor& x = in[0];
    HEDDLE_ASSIGN_OR_RETURN(Shape axes, NormalizeAxes(IntsAttr(attrs, "axes"), x.rank()));
    const bool keepdims = IntAttr(attrs, "keepdims", 1) != 0;
    tensor::Tensor max = ReduceOver(b, "log_sum_exp_max", x, axes, true, ReduceOp::kMax,
                                    [&](std::vector<Expr> i) { return x.At(std::move(i)); });
    tensor::Tensor sum =
        ReduceOver(b, "log_sum_exp_sum", x, axes, true, ReduceOp::kSum, [&](std::vector<Expr> i) {
          Expr shift = max.At(KeptIndex(i, axes));
          return Make(Op::kExp, {x.At(std::move(i)) - shift});
        });
    return std::vector{
        b.Compute("log_sum_exp", ReducedShape(x.shape(), axes, keepdims), [&](tensor::Iters s) {
          std::vector<Expr> kept;
          size_t next = 0;
          for (int64_t d = 0; d < x.rank(); ++d) {
            const bool reduced = std::find(axes.begin(), axes.end(), d) != axes.end();
            kept.push_back(reduced ? ir::Int(0) : s[next]);
            if (!reduced || keepdims) ++next;
          }
          return max.At(kept) + Make(Op::kLog, {sum.At(kept)});
        })};
  };
  return op;
}

// Position of the first (or last) maximum or minimum along `axis`, as i64: the extreme first, then
// the least (greatest) position that holds it.
OpDef ArgOp(std::string_view name, ReduceOp extreme) {
  OpDef op{name, FusionClass::kReduction};
  op.infer = [](Types in, const Attrs& attrs) -> absl::StatusOr<std::vector<TensorType>> {
    HEDDLE_ASSIGN_OR_RETURN(std::vector<TensorType> out, InferReduction(in, attrs));
    out[0].dtype = DType::kI64;
    return out;
  };
  op.express = [name, extreme](tensor::Builder& b, Tensors in,
                               const Attrs& attrs) -> absl::StatusOr<std::vector<tensor::Tensor>> {
    const tensor::Tensor& x = in[0];
    HEDDLE_ASSIGN_OR_RETURN(Shape axes, NormalizeAxes(IntsAttr(attrs, "axes"), x.rank()));
    const bool last = IntAttr(attrs, "select_last_index") != 0;
    const int64_t axis = axes[0];
    tensor::Tensor best = ReduceOver(b, std::string(name) + "_value", x, axes, true, extreme,
                                     [&](std::vector<Expr> i) { return x.At(std::move(i)); });
    return std::vector{
        ReduceOver(b, std::string(name), x, axes, IntAttr(attrs, "keepdims", 1) != 0,
                   last ? ReduceOp::kMax : ReduceOp::kMin, [&](std::vector<Expr> i) {
                     Expr at = i[axis];
                     Expr hit = Make(Op::kEq, {x.At(i), best.At(KeptIndex(i, axes))});
                     return ir::Select(hit, at, ir::Int(last ? 0 : x.shape()[axis] - 1));
                   })};
  };
  return op;
}

// Running sum along `axis`: every element sums its prefix. Quadratic in the axis, which is short
// where models use it.
OpDef CumSumOp() {
  OpDef op{"cum_sum", FusionClass::kReduction};
  op.infer = [](Types in, const Attrs& attrs) -> absl::StatusOr<std::vector<TensorType>> {
    HEDDLE_RETURN_IF_ERROR(ExpectInputs(in, 1, 1));
    if (in[0].dtype == DType::kBool) return BadInput("is not defined on bool");
    HEDDLE_RETURN_IF_ERROR(
        NormalizeAxis(IntAttr(attrs, "axis"), static_cast<int>(in[0].shape.size())).status());
    return std::vector{in[0]};
  };
  op.express = [](tensor::Builder& b, Tensors in,
                  const Attrs& attrs) -> absl::StatusOr<std::vector<tensor::Tensor>> {
    const tensor::Tensor& x = in[0];
    HEDDLE_ASSIGN_OR_RETURN(int64_t axis, NormalizeAxis(IntAttr(attrs, "axis"), x.rank()));
    const bool exclusive = IntAttr(attrs, "exclusive") != 0,
               reverse = IntAttr(attrs, "reverse") != 0;
    return std::vector{b.Reduce("cum_sum", x.shape(), {x.shape()[axis]}, ReduceOp::kSum,
                                [&](tensor::Iters s, tensor::Iters r) {
                                  std::vector<Expr> i(s.begin(), s.end());
                                  i[axis] = r[0];
                                  const Expr low = reverse ? s[axis] : r[0],
                                             high = reverse ? r[0] : s[axis];
                                  Expr take = exclusive ? ir::Lt(low, high) : ir::Le(low, high);
                                  return ir::Select(take, x.At(std::move(i)), ir::Zero(x.dtype()));
                                })};
  };
  return op;
}

}  // namespace

void AppendReductionOps(std::vector<OpDef>& ops) {
  for (const Reduction& row : kReductions) ops.push_back(ReductionOp(row));
  ops.push_back(LogSumExpOp());
  ops.push_back(ArgOp("arg_max", ReduceOp::kMax));
  ops.push_back(ArgOp("arg_min", ReduceOp::kMin));
  ops.push_back(CumSumOp());
}

}  // namespace heddle::graph
