// Pooling over windows: max_pool, avg_pool, lp_pool. Global pools are reductions.
#include <cmath>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "compiler/graph/ops/op_util.h"
#include "compiler/graph/ops/window.h"

namespace heddle::graph {
namespace {

using ir::Expr;
using ir::Make;
using ir::Op;
using ir::ReduceOp;

struct PoolShape {
  Window w;
  Shape out;
};

absl::StatusOr<PoolShape> ParsePool(const Shape& x, const OpAttrs& attrs) {
  PoolShape p;
  HEDDLE_ASSIGN_OR_RETURN(
      p.w, ParseWindow(attrs, LayoutOf(attrs), attrs.Ints("kernel"), static_cast<int>(x.size())));
  Shape spatial;
  for (int i = 0; i < p.w.n; ++i) {
    spatial.push_back(p.w.Positions(i, x[p.w.SpatialAxis(i)], attrs.Flag("ceil_mode")));
    if (spatial.back() < 1)
      return BadInput(absl::StrCat("the window does not fit into input ", ShapeText(x)));
  }
  p.out = p.w.WithSpatial(x, spatial);
  return p;
}

absl::StatusOr<TensorType> InferPool(Types in, const OpAttrs& attrs) {
  HEDDLE_RETURN_IF_ERROR(ExpectInputs(in, 1, 1));
  if (in[0].dtype == ir::DType::kBool) return BadInput("is not defined on bool");
  HEDDLE_ASSIGN_OR_RETURN(PoolShape p, ParsePool(in[0].shape, attrs));
  return TensorType{in[0].dtype, p.out};
}

// Reduces x over the window. Elements outside of the input count as `fill`.
tensor::Tensor OverWindow(tensor::Builder& b, const std::string& name, const tensor::Tensor& x,
                          const PoolShape& p, ReduceOp op, const Expr& fill,
                          const std::function<Expr(Expr)>& value) {
  const Window& w = p.w;
  tensor::Tensor padded = PadForWindow(b, x, w, p.out, fill);
  return b.Reduce(name, p.out, w.kernel, op, [&](tensor::Iters s, tensor::Iters k) {
    return value(padded.At(w.WithSpatial(s, TapIndex(w, SpatialOf(w, s), k))));
  });
}

// The number of taps of the window at position `o` that lie in [low, high), where 0 is the first
// element of the input.
Expr TapsInside(const Window& w, int i, const Expr& o, int64_t low, int64_t high,
                int64_t positions) {
  const int64_t first = -w.begin[i],
                last = (positions - 1) * w.strides[i] - w.begin[i] + w.Reach(i);
  if (first >= low && last <= high) return ir::Int(w.kernel[i]);
  Expr start = o * ir::Int(w.strides[i]) - ir::Int(w.begin[i]);
  // Taps t with low <= start + t*dilation < high.
  const Expr d = ir::Int(w.dilations[i]);
  Expr skipped = ir::FloorDiv(
      Make(Op::kMax, {ir::Int(low) - start, ir::Int(0)}) + ir::Int(w.dilations[i] - 1), d);
  Expr until = ir::FloorDiv(ir::Int(high) - start + ir::Int(w.dilations[i] - 1), d);
  return Make(Op::kMin, {until, ir::Int(w.kernel[i])}) - skipped;
}

absl::StatusOr<tensor::Tensor> ExpressAverage(tensor::Builder& b, Tensors in,
                                              const OpAttrs& attrs) {
  const tensor::Tensor& x = in[0];
  HEDDLE_ASSIGN_OR_RETURN(PoolShape p, ParsePool(x.shape(), attrs));
  const Window& w = p.w;
  const bool count_padding = attrs.Flag("count_include_pad");
  tensor::Tensor sum = OverWindow(b, "avg_pool", x, p, ReduceOp::kSum, ir::Zero(x.dtype()),
                                  [](Expr e) { return e; });
  return b.Compute("avg_pool_divide", p.out, [&](tensor::Iters s) {
    Expr count = ir::Int(1);
    for (int i = 0; i < w.n; ++i) {
      const int d = w.SpatialAxis(i);
      const int64_t low = count_padding ? -w.begin[i] : 0;
      const int64_t high = x.shape()[d] + (count_padding ? w.end[i] : 0);
      count = count * TapsInside(w, i, s[d], low, high, p.out[d]);
    }
    int64_t constant;
    Expr divisor = ir::IsConstInt(count, &constant)
                       ? Number(static_cast<double>(constant), x.dtype())
                       : ir::Cast(x.dtype(), count);
    return Make(Op::kDiv, {sum.At({s.begin(), s.end()}), divisor});
  });
}

OpDef PoolOp(OpKind kind) {
  OpDef op{kind, FusionClass::kComplexOutFusable};
  op.family = OpFamily::kPool;
  op.attrs = WindowAttrs();
  op.attrs.push_back({"kernel", Shape{}});
  op.attrs.push_back({"ceil_mode", int64_t{0}});
  op.infer = InferPool;
  op.layout.last = IsChannelsFirst;
  op.layout.blocked = OperandAndResultBlock;
  return op;
}

OpDef MaxPoolOp() {
  OpDef op = PoolOp(OpKind::kMaxPool);
  op.express = [](tensor::Builder& b, Tensors in,
                  const OpAttrs& attrs) -> absl::StatusOr<tensor::Tensor> {
    HEDDLE_ASSIGN_OR_RETURN(PoolShape p, ParsePool(in[0].shape(), attrs));
    return OverWindow(b, "max_pool", in[0], p, ReduceOp::kMax, Lowest(in[0].dtype()),
                      [](Expr e) { return e; });
  };
  return op;
}

OpDef AvgPoolOp() {
  OpDef op = PoolOp(OpKind::kAvgPool);
  op.attrs.push_back({"count_include_pad", int64_t{0}});
  op.express = ExpressAverage;
  return op;
}

OpDef LpPoolOp() {
  OpDef op = PoolOp(OpKind::kLpPool);
  op.attrs.push_back({"p", int64_t{2}});
  op.express = [](tensor::Builder& b, Tensors in,
                  const OpAttrs& attrs) -> absl::StatusOr<tensor::Tensor> {
    const tensor::Tensor& x = in[0];
    HEDDLE_ASSIGN_OR_RETURN(PoolShape p, ParsePool(x.shape(), attrs));
    const int64_t power = attrs.Int("p");
    const auto to = [&](Expr base, double exponent) {
      return Make(Op::kPow, {std::move(base), Number(exponent, x.dtype())});
    };
    tensor::Tensor sum =
        OverWindow(b, "lp_pool", x, p, ReduceOp::kSum, ir::Zero(x.dtype()), [&](Expr e) {
          return power == 2 ? e * e : to(Make(Op::kAbs, {e}), static_cast<double>(power));
        });
    return b.Compute("lp_pool_root", p.out, [&](tensor::Iters s) {
      Expr total = sum.At({s.begin(), s.end()});
      return power == 2 ? Make(Op::kSqrt, {total}) : to(total, 1.0 / static_cast<double>(power));
    });
  };
  return op;
}

}  // namespace

void AppendPoolingOps(std::vector<OpDef>& ops) {
  ops.push_back(MaxPoolOp());
  ops.push_back(AvgPoolOp());
  ops.push_back(LpPoolOp());
}

}  // namespace heddle::graph
