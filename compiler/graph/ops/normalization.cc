// Operators that relate each element to statistics over its neighbours: softmax, log_softmax,
// hardmax, normalize, lrn.
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "compiler/graph/ops/op_util.h"

namespace heddle::graph {
namespace {

using ir::Expr;
using ir::Make;
using ir::Op;
using ir::ReduceOp;

absl::StatusOr<TensorType> InferOverAxes(Types in, const OpAttrs& attrs) {
  HEDDLE_RETURN_IF_ERROR(ExpectInputs(in, 1, 1));
  if (!ir::IsFloat(in[0].dtype)) return BadInput(absl::StrCat("is not defined on ", ToText(in[0])));
  HEDDLE_ASSIGN_OR_RETURN(Shape axes,
                          NormalizeAxes(attrs.Ints("axes"), static_cast<int>(in[0].shape.size())));
  if (axes.empty()) return BadInput("works over no axis");
  return in[0];
}

tensor::Tensor MaxOver(tensor::Builder& b, const std::string& name, const tensor::Tensor& x,
                       const Shape& axes) {
  return ReduceOver(b, name, x, axes, true, ReduceOp::kMax,
                    [&](std::vector<Expr> i) { return x.At(std::move(i)); });
}

// e^(x - max), divided by its sum.
absl::StatusOr<tensor::Tensor> ExpressSoftmax(tensor::Builder& b, Tensors in,
                                              const OpAttrs& attrs) {
  const tensor::Tensor& x = in[0];
  HEDDLE_ASSIGN_OR_RETURN(Shape axes, NormalizeAxes(attrs.Ints("axes"), x.rank()));
  tensor::Tensor max = MaxOver(b, "softmax_max", x, axes);
  tensor::Tensor e = b.Compute("softmax_exp", x.shape(), [&](tensor::Iters s) {
    return Exp(x.At({s.begin(), s.end()}) - max.At(KeptIndex(s, axes)));
  });
  tensor::Tensor sum = ReduceOver(b, "softmax_sum", e, axes, true, ReduceOp::kSum,
                                  [&](std::vector<Expr> i) { return e.At(std::move(i)); });
  return b.Compute("softmax", x.shape(), [&](tensor::Iters s) {
    return Div(e.At({s.begin(), s.end()}), sum.At(KeptIndex(s, axes)));
  });
}

absl::StatusOr<tensor::Tensor> ExpressLogSoftmax(tensor::Builder& b, Tensors in,
                                                 const OpAttrs& attrs) {
  const tensor::Tensor& x = in[0];
  HEDDLE_ASSIGN_OR_RETURN(Shape axes, NormalizeAxes(attrs.Ints("axes"), x.rank()));
  tensor::Tensor max = MaxOver(b, "log_softmax_max", x, axes);
  tensor::Tensor sum =
      ReduceOver(b, "log_softmax_sum", x, axes, true, ReduceOp::kSum, [&](std::vector<Expr> i) {
        Expr shift = max.At(KeptIndex(i, axes));
        return Exp(x.At(std::move(i)) - shift);
      });
  return b.Compute("log_softmax", x.shape(), [&](tensor::Iters s) {
    std::vector<Expr> kept = KeptIndex(s, axes);
    return x.At({s.begin(), s.end()}) - max.At(kept) - Make(Op::kLog, {sum.At(kept)});
  });
}

// One at the first maximum along the axes (row-major order), zero elsewhere.
absl::StatusOr<tensor::Tensor> ExpressHardmax(tensor::Builder& b, Tensors in,
                                              const OpAttrs& attrs) {
  const tensor::Tensor& x = in[0];
  HEDDLE_ASSIGN_OR_RETURN(Shape axes, NormalizeAxes(attrs.Ints("axes"), x.rank()));
  const auto linear = [&](tensor::Iters i) {
    Expr at = ir::Int(0);
    for (int64_t axis : axes) at = at * ir::Int(x.shape()[axis]) + i[axis];
    return at;
  };
  int64_t count = 1;
  for (int64_t axis : axes) count *= x.shape()[axis];
  tensor::Tensor max = MaxOver(b, "hardmax_max", x, axes);
  tensor::Tensor first =
      ReduceOver(b, "hardmax_first", x, axes, true, ReduceOp::kMin, [&](std::vector<Expr> i) {
        Expr hit = Make(Op::kEq, {x.At(i), max.At(KeptIndex(i, axes))});
        return ir::Select(hit, linear(i), ir::Int(count));
      });
  return b.Compute("hardmax", x.shape(), [&](tensor::Iters s) {
    Expr hit = Make(Op::kEq, {linear(s), first.At(KeptIndex(s, axes))});
    return ir::Select(hit, Number(1, x.dtype()), ir::Zero(x.dtype()));
  });
}

// (x - mean) / sqrt(variance + epsilon), with mean and variance over the axes. The variance takes
// its own pass, because E[x^2] - E[x]^2 suffers from cancellation.
absl::StatusOr<tensor::Tensor> ExpressNormalize(tensor::Builder& b, Tensors in,
                                                const OpAttrs& attrs) {
  const tensor::Tensor& x = in[0];
  HEDDLE_ASSIGN_OR_RETURN(Shape axes, NormalizeAxes(attrs.Ints("axes"), x.rank()));
  int64_t count = 1;
  for (int64_t axis : axes) count *= x.shape()[axis];
  const Expr n = Number(static_cast<double>(count), x.dtype());
  tensor::Tensor sum = ReduceOver(b, "normalize_sum", x, axes, true, ReduceOp::kSum,
                                  [&](std::vector<Expr> i) { return x.At(std::move(i)); });
  tensor::Tensor centered = b.Compute("normalize_center", x.shape(), [&](tensor::Iters s) {
    return x.At({s.begin(), s.end()}) - Div(sum.At(KeptIndex(s, axes)), n);
  });
  tensor::Tensor squares = ReduceOver(b, "normalize_squares", centered, axes, true, ReduceOp::kSum,
                                      [&](std::vector<Expr> i) {
                                        Expr d = centered.At(std::move(i));
                                        return d * d;
                                      });
  return b.Compute("normalize", x.shape(), [&](tensor::Iters s) {
    Expr variance = Div(squares.At(KeptIndex(s, axes)), n);
    Expr epsilon = Number(attrs.Float("epsilon"), x.dtype());
    return Div(centered.At({s.begin(), s.end()}), Make(Op::kSqrt, {variance + epsilon}));
  });
}

OpDef OverAxesOp(OpKind kind, ExpressFn express) {
  OpDef op = MakeOp(kind, FusionClass::kComplexOutFusable, InferOverAxes, express,
                    {{"axes", Shape{}, AttrRole::kAxes}});
  op.layout.last = Always;
  return op;
}

// There are no forms in other layouts, because another order of dimensions may make another maximum
// the first one.
OpDef HardmaxOp() {
  OpDef op = OverAxesOp(OpKind::kHardmax, ExpressHardmax);
  op.layout = {};
  return op;
}

OpDef NormalizeOp() {
  OpDef op = OverAxesOp(OpKind::kNormalize, ExpressNormalize);
  op.attrs.push_back({"epsilon", 1e-5});
  return op;
}

// x / (bias + alpha/size * s)^beta, where s is the sum of squares over the `size` channels around
// x.
OpDef LrnOp() {
  OpDef op{OpKind::kLrn, FusionClass::kComplexOutFusable};
  op.attrs = {{"axis", int64_t{1}, AttrRole::kAxis},
              {"size", int64_t{0}},
              {"alpha", 1e-4},
              {"beta", 0.75},
              {"bias", 1.0}};
  op.layout.last = Always;
  op.infer = [](Types in, const OpAttrs& attrs) -> absl::StatusOr<TensorType> {
    HEDDLE_RETURN_IF_ERROR(ExpectInputs(in, 1, 1));
    if (!ir::IsFloat(in[0].dtype))
      return BadInput(absl::StrCat("is not defined on ", ToText(in[0])));
    const int64_t size = attrs.Int("size");
    constexpr int64_t kLargest = 1 << 20;  // far more channels than any model has
    if (in[0].shape.size() < 2 || size < 1 || size > kLargest) {
      return BadInput(absl::StrCat("needs channels and a size from 1 to ", kLargest));
    }
    HEDDLE_RETURN_IF_ERROR(
        NormalizeAxis(attrs.Int("axis"), static_cast<int>(in[0].shape.size())).status());
    return in[0];
  };
  op.express = [](tensor::Builder& b, Tensors in,
                  const OpAttrs& attrs) -> absl::StatusOr<tensor::Tensor> {
    const tensor::Tensor& x = in[0];
    const int64_t size = attrs.Int("size"), axis = attrs.Int("axis");
    Shape begin(x.rank(), 0), extents = x.shape();
    begin[axis] = (size - 1) / 2;
    extents[axis] += size - 1;
    tensor::Tensor padded = PadTo(b, x, begin, extents, ir::Zero(x.dtype()));
    tensor::Tensor sum = b.Reduce("lrn_sum", x.shape(), {size}, ReduceOp::kSum,
                                  [&](tensor::Iters s, tensor::Iters r) {
                                    std::vector<Expr> i(s.begin(), s.end());
                                    i[axis] = i[axis] + r[0];
                                    Expr v = padded.At(std::move(i));
                                    return v * v;
                                  });
    const double alpha = attrs.Float("alpha") / static_cast<double>(size);
    return b.Compute("lrn", x.shape(), [&](tensor::Iters s) {
      std::vector<Expr> i(s.begin(), s.end());
      Expr base = Number(attrs.Float("bias"), x.dtype()) + Number(alpha, x.dtype()) * sum.At(i);
      return Div(x.At(i), Make(Op::kPow, {base, Number(attrs.Float("beta"), x.dtype())}));
    });
  };
  return op;
}

}  // namespace

void AppendNormalizationOps(std::vector<OpDef>& ops) {
  ops.push_back(OverAxesOp(OpKind::kSoftmax, ExpressSoftmax));
  ops.push_back(OverAxesOp(OpKind::kLogSoftmax, ExpressLogSoftmax));
  ops.push_back(HardmaxOp());
  ops.push_back(NormalizeOp());
  ops.push_back(LrnOp());
}

}  // namespace heddle::graph
