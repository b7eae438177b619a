// Reductions over axes, arg-max and arg-min, running sums.
#include <algorithm>
#include <cstdint>
#include <limits>

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
  OpKind kind;
  ReduceOp op;
  Expr (*before)(const Expr& x);                      // applied to every element
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
    {OpKind::kReduceSum, ReduceOp::kSum, Same, nullptr},
    {OpKind::kReduceMean, ReduceOp::kSum, Same, Mean},
    {OpKind::kReduceMax, ReduceOp::kMax, Same, nullptr},
    {OpKind::kReduceMin, ReduceOp::kMin, Same, nullptr},
    {OpKind::kReduceProd, ReduceOp::kProd, Same, nullptr},
    {OpKind::kReduceL1, ReduceOp::kSum, Abs, nullptr},
    {OpKind::kReduceL2, ReduceOp::kSum, Square, Sqrt},
    {OpKind::kReduceSumSquare, ReduceOp::kSum, Square, nullptr},
    {OpKind::kReduceLogSum, ReduceOp::kSum, Same, Log},
};

absl::StatusOr<TensorType> InferReduction(Types in, const OpAttrs& attrs) {
  HEDDLE_RETURN_IF_ERROR(ExpectInputs(in, 1, 1));
  if (in[0].dtype == DType::kBool) return BadInput("is not defined on bool");
  HEDDLE_ASSIGN_OR_RETURN(Shape axes,
                          NormalizeAxes(attrs.Ints("axes"), static_cast<int>(in[0].shape.size())));
  if (axes.empty()) return BadInput("reduces over no axis");
  return TensorType{in[0].dtype, ReducedShape(in[0].shape, axes, attrs.Flag("keepdims"))};
}

int64_t CountOver(const Shape& shape, const Shape& axes) {
  int64_t count = 1;
  for (int64_t axis : axes) count *= shape[axis];
  return count;
}

// ---- Layouts ----

bool IsAmong(const Shape& axes, int64_t d) {
  return std::find(axes.begin(), axes.end(), d) != axes.end();
}

// If dimensions are dropped, the others must have the same order in both layouts.
bool ReducesChannelsLast(const OpUse& use) {
  const Shape& axes = use.attrs.Ints("axes");
  bool spatial_left = false;
  for (size_t d = 2; d < use.inputs[0].shape.size(); ++d)
    spatial_left |= !IsAmong(axes, static_cast<int64_t>(d));
  return use.attrs.Flag("keepdims") || IsAmong(axes, 1) || !spatial_left;
}

// A blocked reduction is over spatial dimensions only, and over all of them if they are dropped.
bool ReducesBlocks(const OpUse& use, int64_t block) {
  const Shape& axes = use.attrs.Ints("axes");
  const bool spatial =
      std::all_of(axes.begin(), axes.end(), [](int64_t axis) { return axis >= 2; });
  return Blocks(use.inputs[0], block) && spatial &&
         (use.attrs.Flag("keepdims") || axes.size() == use.inputs[0].shape.size() - 2);
}

// ---- Definitions ----

OpDef OverAxes(OpKind kind) {
  OpDef op{kind, FusionClass::kReduction};
  op.family = OpFamily::kReduction;
  op.attrs = {{"axes", Shape{}, AttrRole::kAxes}, {"keepdims", int64_t{1}}};
  op.infer = InferReduction;
  op.layout.last = ReducesChannelsLast;
  op.layout.blocked = ReducesBlocks;
  return op;
}

bool NeedsFloats(OpKind kind) { return kind == OpKind::kReduceL2 || kind == OpKind::kReduceLogSum; }

OpDef ReductionOp(const Reduction& row) {
  OpDef op = OverAxes(row.kind);
  op.express = [row](tensor::Builder& b, Tensors in,
                     const OpAttrs& attrs) -> absl::StatusOr<tensor::Tensor> {
    const tensor::Tensor& x = in[0];
    HEDDLE_ASSIGN_OR_RETURN(Shape axes, NormalizeAxes(attrs.Ints("axes"), x.rank()));
    // A root or logarithm of integers is computed in doubles and truncated.
    const bool widen = NeedsFloats(row.kind) && !ir::IsFloat(x.dtype());
    const auto widened = [&](Expr e) { return widen ? ir::Cast(DType::kF64, std::move(e)) : e; };
    tensor::Tensor y =
        ReduceOver(b, NameOf(row.kind), x, axes, attrs.Flag("keepdims"), row.op,
                   [&](std::vector<Expr> i) { return row.before(widened(x.At(std::move(i)))); });
    if (row.after == nullptr) return y;
    const int64_t count = CountOver(x.shape(), axes);
    return b.Compute(absl::StrCat(NameOf(row.kind), "_finish"), y.shape(), [&](tensor::Iters s) {
      Expr result = row.after(y.At({s.begin(), s.end()}), count);
      return widen ? ir::Cast(x.dtype(), result) : result;
    });
  };
  return op;
}

// log(sum(exp(x))), shifted by the maximum to avoid overflow and underflow. An infinite maximum is
// the result, or nearly, and must not be subtracted from itself. Integers are computed in doubles
// and truncated.
OpDef LogSumExpOp() {
  OpDef op = OverAxes(OpKind::kReduceLogSumExp);
  op.express = [](tensor::Builder& b, Tensors in,
                  const OpAttrs& attrs) -> absl::StatusOr<tensor::Tensor> {
    const tensor::Tensor& x = in[0];
    HEDDLE_ASSIGN_OR_RETURN(Shape axes, NormalizeAxes(attrs.Ints("axes"), x.rank()));
    const bool keepdims = attrs.Flag("keepdims");
    const auto at = [&](std::vector<Expr> i) {
      Expr e = x.At(std::move(i));
      return ir::IsFloat(x.dtype()) ? e : ir::Cast(DType::kF64, std::move(e));
    };
    tensor::Tensor max = ReduceOver(b, "log_sum_exp_max", x, axes, true, ReduceOp::kMax, at);
    const auto shift = [&](std::vector<Expr> kept) {
      Expr e = max.At(std::move(kept));
      return ir::Select(Make(Op::kIsInf, {e}), ir::Zero(e->dtype), e);
    };
    tensor::Tensor sum =
        ReduceOver(b, "log_sum_exp_sum", x, axes, true, ReduceOp::kSum, [&](std::vector<Expr> i) {
          Expr by = shift(KeptIndex(i, axes));
          return Make(Op::kExp, {at(std::move(i)) - by});
        });
    return b.Compute("log_sum_exp", ReducedShape(x.shape(), axes, keepdims), [&](tensor::Iters s) {
      std::vector<Expr> kept;
      size_t next = 0;
      for (int64_t d = 0; d < x.rank(); ++d) {
        const bool reduced = IsAmong(axes, d);
        kept.push_back(reduced ? ir::Int(0) : s[next]);
        if (!reduced || keepdims) ++next;
      }
      Expr result = shift(kept) + Make(Op::kLog, {sum.At(kept)});
      return result->dtype == x.dtype() ? result : ir::Cast(x.dtype(), result);
    });
  };
  return op;
}

// The position of the first (or last) maximum or minimum along `axis`, as i64. The first stage
// finds the extreme value, the second the least (or greatest) position that holds it. Positions are found as
// i32 where they fit, of which a vector has twice as many.
OpDef ArgOp(OpKind kind, ReduceOp extreme) {
  OpDef op = OverAxes(kind);
  op.attrs.push_back({"select_last_index", int64_t{0}});
  op.layout.blocked = nullptr;
  op.infer = [](Types in, const OpAttrs& attrs) -> absl::StatusOr<TensorType> {
    HEDDLE_ASSIGN_OR_RETURN(TensorType out, InferReduction(in, attrs));
    out.dtype = DType::kI64;
    return out;
  };
  op.express = [kind, extreme](tensor::Builder& b, Tensors in,
                               const OpAttrs& attrs) -> absl::StatusOr<tensor::Tensor> {
    const tensor::Tensor& x = in[0];
    const std::string& name = NameOf(kind);
    HEDDLE_ASSIGN_OR_RETURN(Shape axes, NormalizeAxes(attrs.Ints("axes"), x.rank()));
    const bool last = attrs.Flag("select_last_index");
    const int64_t axis = axes[0];
    tensor::Tensor best = ReduceOver(b, name + "_value", x, axes, true, extreme,
                                     [&](std::vector<Expr> i) { return x.At(std::move(i)); });
    const int64_t extent = x.shape()[axis];
    const DType number = extent <= std::numeric_limits<int32_t>::max() ? DType::kI32 : DType::kI64;
    const tensor::Tensor found =
        ReduceOver(b, name, x, axes, attrs.Flag("keepdims"), last ? ReduceOp::kMax : ReduceOp::kMin,
                   [&](std::vector<Expr> i) {
                     Expr at = ir::Cast(number, i[axis]);
                     Expr hit = Make(Op::kEq, {x.At(i), best.At(KeptIndex(i, axes))});
                     return ir::Select(hit, at, ir::Int(last ? 0 : extent - 1, number));
                   });
    if (number == DType::kI64) return found;
    return b.Compute(name + "_finish", found.shape(), [&](tensor::Iters s) {
      return ir::Cast(DType::kI64, found.At({s.begin(), s.end()}));
    });
  };
  return op;
}

// Running sum or product along `axis`: every element reduces its prefix. The work is quadratic in
// the extent of the axis, which is short in the models that use it.
OpDef RunningOp(OpKind kind, ReduceOp reduce, int neutral) {
  OpDef op{kind, FusionClass::kReduction};
  op.attrs = {
      {"axis", int64_t{0}, AttrRole::kAxis}, {"exclusive", int64_t{0}}, {"reverse", int64_t{0}}};
  op.layout.last = Always;
  op.infer = [](Types in, const OpAttrs& attrs) -> absl::StatusOr<TensorType> {
    HEDDLE_RETURN_IF_ERROR(ExpectInputs(in, 1, 1));
    if (in[0].dtype == DType::kBool) return BadInput("is not defined on bool");
    HEDDLE_RETURN_IF_ERROR(
        NormalizeAxis(attrs.Int("axis"), static_cast<int>(in[0].shape.size())).status());
    return in[0];
  };
  op.express = [kind, reduce, neutral](tensor::Builder& b, Tensors in,
                                       const OpAttrs& attrs) -> absl::StatusOr<tensor::Tensor> {
    const tensor::Tensor& x = in[0];
    HEDDLE_ASSIGN_OR_RETURN(int64_t axis, NormalizeAxis(attrs.Int("axis"), x.rank()));
    const bool exclusive = attrs.Flag("exclusive"), reverse = attrs.Flag("reverse");
    return b.Reduce(NameOf(kind), x.shape(), {x.shape()[axis]}, reduce,
                    [&](tensor::Iters s, tensor::Iters r) {
                      std::vector<Expr> i(s.begin(), s.end());
                      i[axis] = r[0];
                      const Expr low = reverse ? s[axis] : r[0], high = reverse ? r[0] : s[axis];
                      Expr take = exclusive ? ir::Lt(low, high) : ir::Le(low, high);
                      return ir::Select(take, x.At(std::move(i)), Number(neutral, x.dtype()));
                    });
  };
  return op;
}

}  // namespace

void AppendReductionOps(std::vector<OpDef>& ops) {
  for (const Reduction& row : kReductions) ops.push_back(ReductionOp(row));
  ops.push_back(LogSumExpOp());
  ops.push_back(ArgOp(OpKind::kArgMax, ReduceOp::kMax));
  ops.push_back(ArgOp(OpKind::kArgMin, ReduceOp::kMin));
  ops.push_back(RunningOp(OpKind::kCumSum, ReduceOp::kSum, 0));
  ops.push_back(RunningOp(OpKind::kCumProd, ReduceOp::kProd, 1));
}

}  // namespace heddle::graph
