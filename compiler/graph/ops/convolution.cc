// Convolutions: conv1d..3d, depthwise_conv1d..3d (channels last). Those of blocked channels are in
// ops_convolution_blocked.cc.
//
// Weights: conv, channels first: [O, I/groups, k..]; channels last: [k.., I/groups, O]; depthwise:
// [k.., C]. There is no bias operand: a bias is an addition, which fuses.
//
// "zero_share" (default 1): of so many weights only one is not zero by construction (layout.h
// merges small groups), so that work is counted as that of the original groups.
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "compiler/graph/ops/op_util.h"
#include "compiler/graph/ops/sum_type.h"
#include "compiler/graph/ops/window.h"

namespace heddle::graph {
namespace {

using ir::Expr;
using ir::ReduceOp;

// ---- conv
// -----------------------------------------------------------------------------------------------------------

struct ConvShape {
  Window w;
  int64_t batch, in_channels, out_channels, groups, group_inputs;
  Shape out;
};

absl::StatusOr<ConvShape> ParseConv(const Shape& x, const Shape& weights, const Attrs& attrs,
                                    int n) {
  if (static_cast<int>(weights.size()) != n + 2) {
    return BadInput(absl::StrCat("needs weights of rank ", n + 2, ", got ", ShapeText(weights)));
  }
  const bool last = StringAttr(attrs, "layout", kChannelsFirst) == kChannelsLast;
  Shape kernel = last ? Shape(weights.begin(), weights.begin() + n)
                      : Shape(weights.begin() + 2, weights.end());
  ConvShape c;
  HEDDLE_ASSIGN_OR_RETURN(c.w, ParseWindow(attrs, std::move(kernel), n + 2));
  c.batch = x[0];
  c.in_channels = x[c.w.ChannelAxis()];
  c.out_channels = last ? weights[n + 1] : weights[0];
  c.group_inputs = last ? weights[n] : weights[1];
  c.groups = IntAttr(attrs, "groups", 1);
  if (c.groups < 1 || c.in_channels % c.groups != 0 || c.out_channels % c.groups != 0 ||
      c.in_channels / c.groups != c.group_inputs) {
    return BadInput(absl::StrCat("weights ", ShapeText(weights), " do not fit input ", ShapeText(x),
                                 " in ", c.groups, " groups"));
  }
  Shape spatial;
  for (int i = 0; i < n; ++i) spatial.push_back(c.w.Positions(i, x[c.w.SpatialAxis(i)], false));
  for (int64_t e : spatial) {
    if (e < 1) return BadInput(absl::StrCat("the kernel does not fit into input ", ShapeText(x)));
  }
  c.out = c.w.Arrange(c.batch, c.out_channels, spatial);
  return c;
}

tensor::Tensor ExpressConv(tensor::Builder& b, const std::string& name, const tensor::Tensor& x,
                           const tensor::Tensor& weights, const ConvShape& c) {
  const Window& w = c.w;
  tensor::Tensor padded =
      b.Stored(PadForWindow(b, x, w, c.out, ir::Zero(x.dtype())), x.buffer()->dtype);
  // One input channel a group leaves no channel to sum over.
  const bool sum_channels = c.group_inputs > 1 || c.groups == 1;
  Shape taps = w.kernel;
  if (sum_channels) taps.insert(w.channels_last ? taps.end() : taps.begin(), c.group_inputs);
  const int first_tap = sum_channels && !w.channels_last ? 1 : 0;
  return b.Reduce(name, c.out, taps, ReduceOp::kSum, [&](tensor::Iters s, tensor::Iters r) {
    const Expr o = s[w.ChannelAxis()];
    const Expr ic = sum_channels ? (w.channels_last ? r[w.n] : r[0]) : ir::Int(0);
    tensor::Iters k = r.subspan(first_tap, w.n);
    Expr channel = ic;
    if (c.groups > 1) {
      const int64_t group_outputs = c.out_channels / c.groups;
      Expr group = group_outputs == 1 ? o : ir::FloorDiv(o, ir::Int(group_outputs));
      channel = group * ir::Int(c.group_inputs) + ic;
    }
    std::vector<Expr> weight_index;
    if (!w.channels_last) weight_index = {o, ic};
    weight_index.insert(weight_index.end(), k.begin(), k.end());
    if (w.channels_last) weight_index.insert(weight_index.end(), {ic, o});
    return padded.At(w.Arrange(s[0], channel, TapIndex(w, SpatialOf(w, s), k))) *
           weights.At(std::move(weight_index));
  });
}

OpDef ConvOp(std::string_view name, int n) {
  OpDef op{name, FusionClass::kComplexOutFusable};
  op.infer = [n](Types in, const Attrs& attrs) -> absl::StatusOr<std::vector<TensorType>> {
    HEDDLE_RETURN_IF_ERROR(CheckConvOperands(in, n + 2));
    HEDDLE_ASSIGN_OR_RETURN(ConvShape c, ParseConv(in[0].shape, in[1].shape, attrs, n));
    return std::vector{TensorType{SumType(in[0].dtype, attrs), c.out}};
  };
  op.express = [name, n](tensor::Builder& b, Tensors in,
                         const Attrs& attrs) -> absl::StatusOr<std::vector<tensor::Tensor>> {
    HEDDLE_ASSIGN_OR_RETURN(ConvShape c, ParseConv(in[0].shape(), in[1].shape(), attrs, n));
    const bool depthwise = c.groups > 1 && c.groups == c.in_channels && c.groups == c.out_channels;
    const std::string stage = depthwise ? "depthwise_" + std::string(name) : std::string(name);
    return std::vector{ExpressConv(b, stage, in[0], in[1], c)};
  };
  op.flops = [n](Types in, Types out, const Attrs& attrs) {
    auto c = ParseConv(in[0].shape, in[1].shape, attrs, n);
    if (!c.ok()) return 0.0;
    return 2.0 * Product(out[0].shape) * c->group_inputs * Product(c->w.kernel) /
           static_cast<double>(IntAttr(attrs, "zero_share", 1));
  };
  return op;
}

// ---- depthwise, channels last
// -----------------------------------------------------------------------------------------

absl::StatusOr<ConvShape> ParseDepthwise(const Shape& x, const Shape& weights, Attrs attrs, int n) {
  if (static_cast<int>(weights.size()) != n + 1) {
    return BadInput(absl::StrCat("needs weights of rank ", n + 1, ", got ", ShapeText(weights)));
  }
  // The same geometry as a convolution with as many groups as channels.
  Shape full(weights.begin(), weights.begin() + n);
  full.insert(full.end(), {1, weights[n]});
  attrs["layout"] = std::string(kChannelsLast);
  attrs["groups"] = weights[n];
  return ParseConv(x, full, attrs, n);
}

OpDef DepthwiseOp(std::string_view name, int n) {
  OpDef op{name, FusionClass::kComplexOutFusable};
  op.infer = [n](Types in, const Attrs& attrs) -> absl::StatusOr<std::vector<TensorType>> {
    HEDDLE_RETURN_IF_ERROR(CheckConvOperands(in, n + 2));
    HEDDLE_ASSIGN_OR_RETURN(ConvShape c, ParseDepthwise(in[0].shape, in[1].shape, attrs, n));
    return std::vector{TensorType{SumType(in[0].dtype, attrs), c.out}};
  };
  op.express = [name, n](tensor::Builder& b, Tensors in,
                         const Attrs& attrs) -> absl::StatusOr<std::vector<tensor::Tensor>> {
    HEDDLE_ASSIGN_OR_RETURN(ConvShape c, ParseDepthwise(in[0].shape(), in[1].shape(), attrs, n));
    const Window& w = c.w;
    tensor::Tensor padded = PadForWindow(b, in[0], w, c.out, ir::Zero(in[0].dtype()));
    return std::vector{b.Reduce(
        std::string(name), c.out, w.kernel, ReduceOp::kSum, [&](tensor::Iters s, tensor::Iters k) {
          std::vector<Expr> tap(k.begin(), k.end());
          tap.push_back(s[n + 1]);
          return padded.At(w.Arrange(s[0], s[n + 1], TapIndex(w, SpatialOf(w, s), k))) *
                 in[1].At(std::move(tap));
        })};
  };
  op.flops = [n](Types in, Types out, const Attrs&) {
    return 2.0 * Product(out[0].shape) *
           Product(Shape(in[1].shape.begin(), in[1].shape.begin() + n));
  };
  return op;
}

}  // namespace

void AppendConvolutionOps(std::vector<OpDef>& ops) {
  constexpr std::string_view kConv[] = {"conv1d", "conv2d", "conv3d"};
  constexpr std::string_view kDepthwise[] = {"depthwise_conv1d", "depthwise_conv2d",
                                             "depthwise_conv3d"};
  for (int n = 1; n <= 3; ++n) {
    ops.push_back(ConvOp(kConv[n - 1], n));
    ops.push_back(DepthwiseOp(kDepthwise[n - 1], n));
  }
}

}  // namespace heddle::graph
