// Operators that relate each element to statistics of its neighbours: softmax, log_softmax,
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

absl::StatusOr<std::vector<TensorType>> InferOverAxes(Types in, const Attrs& attrs) {
  HEDDLE_RETURN_IF_ERROR(ExpectInputs(in, 1, 1));
  if (!ir::IsFloat(in[0].dtype)) return BadInput(absl::StrCat("is not defined on ", ToText(in[0])));
  HEDDLE_ASSIGN_OR_RETURN(
      Shape axes, NormalizeAxes(IntsAttr(attrs, "axes"), static_cast<int>(in[0].shape.size())));
  if (axes.empty()) return BadInput("works over no axis");
  return std::vector{in[0]};
}

Expr Exp(Expr e) { return Make(Op::kExp, {std::move(e)}); }
Expr Div(Expr a, Expr b) { return Make(Op::kDiv, {std::move(a), std::move(b)}); }

tensor::Tensor MaxOver(tensor::Builder& b, const std::string& name, const tensor::Tensor& x,
                       const Shape& axes) {
  return ReduceOver(b, name, x, axes, true, ReduceOp::kMax,
                    [&](std::vector<Expr> i) { return x.At(std::move(i)); });
}

// e^(x - max) / sum of the same.
absl::StatusOr<std::vector<tensor::Tensor>> ExpressSoftmax(tensor::Builder& b, Tensors in,
                                                           const Attrs& attrs) {
  const tensor::Tensor& x = in[0];
  HEDDLE_ASSIGN_OR_RETURN(Shape axes, NormalizeAxes(IntsAttr(attrs, "axes"), x.rank()));
  tensor::Tensor max = MaxOver(b, "softmax_max", x, axes);
  tensor::Tensor e = b.Compute("softmax_exp", x.shape(), [&](tensor::Iters s) {
    return Exp(x.At({s.begin(), s.end()}) - max.At(KeptIndex(s, axes)));
  });
  tensor::Tensor sum = ReduceOver(b, "softmax_sum", e, axes, true, ReduceOp::kSum,
                                  [&](std::vector<Expr> i) { return e.At(std::move(i)); });
  return std::vector{b.Compute("softmax", x.shape(), [&](tensor::Iters s) {
    return Div(e.At({s.begin(), s.end()}), sum.At(KeptIndex(s, axes)));
  })};
}

absl::StatusOr<std::vector<tensor::Tensor>> ExpressLogSoftmax(tensor::Builder& b, Tensors in,
                                                              const Attrs& attrs) {
  const tensor::Tensor& x = in[0];
  HEDDLE_ASSIGN_OR_RETURN(Shape axes, NormalizeAxes(IntsAttr(attrs, "axes"), x.rank()));
  tensor::Tensor max = MaxOver(b, "log_softmax_max", x, axes);
  tensor::Tensor sum =
      ReduceOver(b, "log_softmax_sum", x, axes, true, ReduceOp::kSum, [&](std::vector<Expr> i) {
        Expr shift = max.At(KeptIndex(i, axes));
        return Exp(x.At(std::move(i)) - shift);
      });
  return std::vector{b.Compute("log_softmax", x.shape(), [&](tensor::Iters s) {
    std::vector<Expr> kept = KeptIndex(s, axes);
    return x.At({s.begin(), s.end()}) - max.At(kept) - Make(Op::kLog, {sum.At(kept)});
  })};
}

// One at the first maximum along the axes (row-major order), zero elsewhere.
absl::StatusOr<std::vector<tensor::Tensor>> ExpressHardmax(tensor::Builder& b, Tensors in,
                                                           const Attrs& attrs) {
  const tensor::Tensor& x = in[0];
  HEDDLE_ASSIGN_OR_RETURN(Shape axes, NormalizeAxes(IntsAttr(attrs, "axes"), x.rank()));
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
  return std::vector{b.Compute("hardmax", x.shape(), [&](tensor::Iters s) {
    Expr hit = Make(Op::kEq, {linear(s), first.At(KeptIndex(s, axes))});
    return ir::Select(hit, Number(1, x.dtype()), ir::Zero(x.dtype()));
  })};
}

// (x - mean) / sqrt(variance + epsilon), both over the axes; two passes, as cancellation would
// spoil E[x^2] - E[x]^2.
absl::StatusOr<std::vector<tensor::Tensor>> ExpressNormalize(tensor::Builder& b, Tensors in,
                                                             const Attrs& attrs) {
  const tensor::Tensor& x = in[0];
  HEDDLE_ASSIGN_OR_RETURN(Shape axes, NormalizeAxes(IntsAttr(attrs, "axes"), x.rank()));
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
  return std::vector{b.Compute("normalize", x.shape(), [&](tensor::Iters s) {
    Expr variance = Div(squares.At(KeptIndex(s, axes)), n);
    Expr epsilon = Number(FloatAttr(attrs, "epsilon", 1e-5), x.dtype());
    return Div(centered.At({s.begin(), s.end()}), Make(Op::kSqrt, {variance + epsilon}));
  })};
}

OpDef OverAxesOp(std::string_view name,
                 absl::StatusOr<std::vector<tensor::Tensor>> (*express)(tensor::Builder&, Tensors,
                                                                        const Attrs&)) {
  OpDef op{name, FusionClass::kComplexOutFusable};
  op.infer = InferOverAxes;
  op.express = express;
  return op;
}

// x / (bias + alpha/size * sum of squares over `size` channels around)^beta.
OpDef LrnOp() {
  OpDef op{"lrn", FusionClass::kComplexOutFusable};
  op.infer = [](Types in, const Attrs& attrs) -> absl::StatusOr<std::vector<TensorType>> {
    HEDDLE_RETURN_IF_ERROR(ExpectInputs(in, 1, 1));
    if (!ir::IsFloat(in[0].dtype))
      return BadInput(absl::StrCat("is not defined on ", ToText(in[0])));
    const int64_t size = IntAttr(attrs, "size");
    constexpr int64_t kLargest = 1 << 20;  // far above any model's number of channels
    if (in[0].shape.size() < 2 || size < 1 || size > kLargest) {
      return BadInput(absl::StrCat("needs channels and a size from 1 to ", kLargest));
    }
    HEDDLE_RETURN_IF_ERROR(
        NormalizeAxis(IntAttr(attrs, "axis", 1), static_cast<int>(in[0].shape.size())).status());
    return std::vector{in[0]};
  };
  op.express = [](tensor::Builder& b, Tensors in,
                  const Attrs& attrs) -> absl::StatusOr<std::vector<tensor::Tensor>> {
    const tensor::Tensor& x = in[0];
    const int64_t size = IntAttr(attrs, "size"), axis = IntAttr(attrs, "axis", 1);
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
    const double alpha = FloatAttr(attrs, "alpha", 1e-4) / static_cast<double>(size);
    return std::vector{b.Compute("lrn", x.shape(), [&](tensor::Iters s) {
      std::vector<Expr> i(s.begin(), s.end());
      Expr base =
          Number(FloatAttr(attrs, "bias", 1), x.dtype()) + Number(alpha, x.dtype()) * sum.At(i);
      return Div(x.At(i),
                 Make(Op::kPow, {base, Number(FloatAttr(attrs, "beta", 0.75), x.dtype())}));
    })};
  };
  return op;
}

}  // namespace

void AppendNormalizationOps(std::vector<OpDef>& ops) {
  ops.push_back(OverAxesOp("softmax", ExpressSoftmax));
  ops.push_back(OverAxesOp("log_softmax", ExpressLogSoftmax));
  ops.push_back(OverAxesOp("hardmax", ExpressHardmax));
  ops.push_back(OverAxesOp("normalize", ExpressNormalize));
  ops.push_back(LrnOp());
}

}  // namespace heddle::graph
