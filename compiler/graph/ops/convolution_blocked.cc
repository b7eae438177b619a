// The forms of convolutions with channels in blocks of b: blocked_conv1d..3d and
// blocked_depthwise_conv1d..3d. Blocked convolutions have one group.
//
// Activations are [N, C/b, spatial.., b]. One side of a convolution that is not depthwise, its
// input or its result, may have channels last instead: [N, spatial.., C]. Weights are [O/b, I/b,
// k.., b of I, b of O]. If the result is not blocked, the dimension O/b is missing and the last one
// is all of O; the same holds for I. Depthwise weights are [C/b, k.., b]. So the weights for a
// vector of results are contiguous, in the order in which they are read.
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "compiler/graph/ops/op_util.h"
#include "compiler/graph/ops/sum_type.h"
#include "compiler/graph/ops/window.h"

namespace heddle::graph {
namespace {

using ir::Expr;
using ir::ReduceOp;

struct BlockedConv {
  Window w;  // over the input
  bool in_blocks = false, out_blocks = false;
  int64_t input_blocks = 1, tap_inputs = 0;  // their product is the number of input channels
  Shape read;  // the input's shape, with the window's positions as spatial extents
  Shape out;
};

// The number of positions of the window over x, per spatial dimension. InvalidArgument: there are
// none.
absl::StatusOr<Shape> Positions(const Window& w, const Shape& x) {
  Shape spatial;
  for (int i = 0; i < w.n; ++i) {
    spatial.push_back(w.Positions(i, x[w.SpatialAxis(i)], false));
    if (spatial.back() < 1)
      return BadInput(absl::StrCat("the kernel does not fit into input ", ShapeText(x)));
  }
  return spatial;
}

absl::StatusOr<BlockedConv> ParseBlocked(const Shape& x, const Shape& weights, const OpAttrs& attrs,
                                         int n) {
  const size_t rank = static_cast<size_t>(n) + 2;
  BlockedConv c;
  c.in_blocks = x.size() == rank + 1;
  const size_t both = rank + 2;  // rank of the weights if both sides are blocked
  c.out_blocks = !c.in_blocks || weights.size() == both;
  const size_t blocks = (c.in_blocks ? 1 : 0) + (c.out_blocks ? 1 : 0);
  if ((x.size() != rank && !c.in_blocks) || weights.size() != rank + blocks) {
    return BadInput(
        absl::StrCat("weights ", ShapeText(weights), " do not fit input ", ShapeText(x)));
  }
  const Layout layout = c.in_blocks ? Layout::kChannelsBlocked : Layout::kChannelsLast;
  const auto taps = weights.begin() + static_cast<int64_t>(blocks);
  HEDDLE_ASSIGN_OR_RETURN(
      c.w, ParseWindow(attrs, layout, Shape(taps, taps + n), static_cast<int>(x.size())));
  c.input_blocks = c.in_blocks ? weights[blocks - 1] : 1;
  c.tap_inputs = weights[weights.size() - 2];
  if (x.back() != c.tap_inputs || (c.in_blocks && x[1] != c.input_blocks)) {
    return BadInput(
        absl::StrCat("weights ", ShapeText(weights), " do not fit input ", ShapeText(x)));
  }
  HEDDLE_ASSIGN_OR_RETURN(const Shape spatial, Positions(c.w, x));
  c.read = c.w.WithSpatial(x, spatial);
  c.out = {x[0]};
  if (c.out_blocks) c.out.push_back(weights[0]);
  c.out.insert(c.out.end(), spatial.begin(), spatial.end());
  c.out.push_back(weights.back());
  return c;
}

tensor::Tensor ExpressBlocked(tensor::Builder& b, const std::string& name, const tensor::Tensor& x,
                              const tensor::Tensor& weights, const BlockedConv& c) {
  const Window& w = c.w;
  const size_t n = static_cast<size_t>(w.n);
  const tensor::Tensor padded =
      b.Stored(PadForWindow(b, x, w, c.read, ir::Zero(x.dtype())), x.buffer()->dtype);
  Shape taps = w.kernel;
  if (c.in_blocks) taps.insert(taps.begin(), c.input_blocks);
  taps.push_back(c.tap_inputs);
  return b.Reduce(name, c.out, taps, ReduceOp::kSum, [&](tensor::Iters s, tensor::Iters r) {
    const tensor::Iters at = s.subspan(c.out_blocks ? 2 : 1, n), k = r.subspan(c.in_blocks, n);
    std::vector<Expr> read{s[0]}, tap;
    if (c.out_blocks) tap.push_back(s[1]);
    if (c.in_blocks) {
      read.push_back(r[0]);
      tap.push_back(r[0]);
    }
    const std::vector<Expr> places = TapIndex(w, {at.begin(), at.end()}, k);
    read.insert(read.end(), places.begin(), places.end());
    read.push_back(r.back());
    tap.insert(tap.end(), k.begin(), k.end());
    tap.insert(tap.end(), {r.back(), s.back()});
    return padded.At(std::move(read)) * weights.At(std::move(tap));
  });
}

// The parts of the definition that both operators share.
OpDef BlockedOp(OpKind kind) {
  OpDef op{kind, FusionClass::kComplexOutFusable};
  op.attrs = WindowAttrs();
  op.attrs.push_back(SingleAttr());
  return op;
}

OpDef BlockedConvOp(int n) {
  const OpKind kind = kBlockedConvolutions[n - 1];
  OpDef op = BlockedOp(kind);
  op.infer = [n](Types in, const OpAttrs& attrs) -> absl::StatusOr<TensorType> {
    HEDDLE_RETURN_IF_ERROR(ExpectInputs(in, 2, 2));
    HEDDLE_RETURN_IF_ERROR(CheckConvOperands(in, static_cast<int>(in[0].shape.size())));
    HEDDLE_ASSIGN_OR_RETURN(BlockedConv c, ParseBlocked(in[0].shape, in[1].shape, attrs, n));
    return TensorType{SumType(in[0].dtype, attrs), c.out};
  };
  op.express = [kind, n](tensor::Builder& b, Tensors in,
                         const OpAttrs& attrs) -> absl::StatusOr<tensor::Tensor> {
    HEDDLE_ASSIGN_OR_RETURN(BlockedConv c, ParseBlocked(in[0].shape(), in[1].shape(), attrs, n));
    return ExpressBlocked(b, NameOf(kind), in[0], in[1], c);
  };
  op.flops = [n](const OpUse& use) {
    auto c = ParseBlocked(use.inputs[0].shape, use.inputs[1].shape, use.attrs, n);
    if (!c.ok()) return 0.0;
    return 2.0 * static_cast<double>(Product(use.output.shape)) *
           static_cast<double>(c->input_blocks * c->tap_inputs * Product(c->w.kernel));
  };
  return op;
}

// ---- depthwise ----

absl::StatusOr<BlockedConv> ParseBlockedDepthwise(const Shape& x, const Shape& weights,
                                                  const OpAttrs& attrs, int n) {
  if (static_cast<int>(weights.size()) != n + 2 || weights[0] != x[1] ||
      weights.back() != x.back()) {
    return BadInput(
        absl::StrCat("weights ", ShapeText(weights), " do not fit input ", ShapeText(x)));
  }
  BlockedConv c;
  HEDDLE_ASSIGN_OR_RETURN(c.w, ParseWindow(attrs, Layout::kChannelsBlocked,
                                           Shape(weights.begin() + 1, weights.end() - 1), n + 3));
  HEDDLE_ASSIGN_OR_RETURN(const Shape spatial, Positions(c.w, x));
  c.out = c.w.WithSpatial(x, spatial);
  return c;
}

OpDef BlockedDepthwiseOp(int n) {
  const OpKind kind = kBlockedDepthwiseConvolutions[n - 1];
  OpDef op = BlockedOp(kind);
  op.infer = [n](Types in, const OpAttrs& attrs) -> absl::StatusOr<TensorType> {
    HEDDLE_RETURN_IF_ERROR(CheckConvOperands(in, n + 3));
    HEDDLE_ASSIGN_OR_RETURN(BlockedConv c,
                            ParseBlockedDepthwise(in[0].shape, in[1].shape, attrs, n));
    return TensorType{SumType(in[0].dtype, attrs), c.out};
  };
  op.express = [kind, n](tensor::Builder& b, Tensors in,
                         const OpAttrs& attrs) -> absl::StatusOr<tensor::Tensor> {
    HEDDLE_ASSIGN_OR_RETURN(BlockedConv c,
                            ParseBlockedDepthwise(in[0].shape(), in[1].shape(), attrs, n));
    const Window& w = c.w;
    const tensor::Tensor padded = PadForWindow(b, in[0], w, c.out, ir::Zero(in[0].dtype()));
    return b.Reduce(NameOf(kind), c.out, w.kernel, ReduceOp::kSum,
                    [&](tensor::Iters s, tensor::Iters k) {
                      std::vector<Expr> tap{s[1]};
                      tap.insert(tap.end(), k.begin(), k.end());
                      tap.push_back(s.back());
                      return padded.At(w.WithSpatial(s, TapIndex(w, SpatialOf(w, s), k))) *
                             in[1].At(std::move(tap));
                    });
  };
  op.flops = [](const OpUse& use) {
    const Shape& weights = use.inputs[1].shape;
    return 2.0 * static_cast<double>(Product(use.output.shape)) *
           static_cast<double>(Product(Shape(weights.begin() + 1, weights.end() - 1)));
  };
  return op;
}

}  // namespace

void AppendBlockedConvolutionOps(std::vector<OpDef>& ops) {
  for (int n = 1; n <= 3; ++n) {
    ops.push_back(BlockedConvOp(n));
    ops.push_back(BlockedDepthwiseOp(n));
  }
}

}  // namespace heddle::graph
