// Convolutions: conv1d..3d, and depthwise_conv1d..3d, the channels-last form of a convolution whose
// groups are single channels. The blocked forms are in convolution_blocked.cc.
//
// Weights are [O, I/groups, k..] for conv with channels first, [k.., I/groups, O] with channels
// last, and [k.., C] for depthwise. There is no bias operand: a bias is an addition, which fuses.
//
// "zero_share": of so many weights, all but one are zero by construction, because small groups were
// merged (convolution_weights.h). Work is counted as that of the original groups.
#include <numeric>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "compiler/graph/core/graph_builder.h"
#include "compiler/graph/ops/convolution_weights.h"
#include "compiler/graph/ops/op_util.h"
#include "compiler/graph/ops/sum_type.h"
#include "compiler/graph/ops/window.h"

namespace heddle::graph {
namespace {

using ir::Expr;
using ir::ReduceOp;

// ---- conv ----

struct ConvShape {
  Window w;
  int64_t batch, in_channels, out_channels, groups, group_inputs;
  Shape out;
};

absl::StatusOr<ConvShape> ParseGroups(const Shape& x, const Shape& weights, const OpAttrs& attrs,
                                      int n, Layout layout, int64_t groups) {
  if (static_cast<int>(weights.size()) != n + 2) {
    return BadInput(absl::StrCat("needs weights of rank ", n + 2, ", got ", ShapeText(weights)));
  }
  const bool last = layout == Layout::kChannelsLast;
  Shape kernel = last ? Shape(weights.begin(), weights.begin() + n)
                      : Shape(weights.begin() + 2, weights.end());
  ConvShape c;
  HEDDLE_ASSIGN_OR_RETURN(c.w, ParseWindow(attrs, layout, std::move(kernel), n + 2));
  c.batch = x[0];
  c.in_channels = x[c.w.ChannelAxis()];
  c.out_channels = last ? weights[n + 1] : weights[0];
  c.group_inputs = last ? weights[n] : weights[1];
  c.groups = groups;
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

absl::StatusOr<ConvShape> ParseConv(const Shape& x, const Shape& weights, const OpAttrs& attrs,
                                    int n) {
  return ParseGroups(x, weights, attrs, n, LayoutOf(attrs), attrs.Int("groups"));
}

tensor::Tensor ExpressConv(tensor::Builder& b, const std::string& name, const tensor::Tensor& x,
                           const tensor::Tensor& weights, const ConvShape& c) {
  const Window& w = c.w;
  tensor::Tensor padded =
      b.Stored(PadForWindow(b, x, w, c.out, ir::Zero(x.dtype())), x.buffer()->dtype);
  // If a group has one input channel, there is no sum over channels.
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

// ---- Forms in other layouts ----

// With one group, the input, the result or both may be blocked. With more groups, each must be a
// single channel.
bool HasBlockedForm(const OpUse& use, int64_t block) {
  const bool in_blocks = Blocks(use.inputs[0], block), out_blocks = Blocks(use.output, block);
  const int64_t groups = use.attrs.Int("groups");
  if (groups == 1) return in_blocks || out_blocks;
  return in_blocks && groups == use.inputs[0].shape[1] && groups == use.output.shape[1];
}

absl::StatusOr<Node> BlockedForm(GraphBuilder& out, Node node, const LayoutRule::Change& change,
                                 int n) {
  ValueId& w = node.inputs[1];
  const bool depthwise = AttrsOf(node).Int("groups") != 1;
  node.attrs.erase("groups");
  node.attrs.erase("layout");
  node.kind = depthwise ? kBlockedDepthwiseConvolutions[n - 1] : kBlockedConvolutions[n - 1];
  if (depthwise) {
    HEDDLE_ASSIGN_OR_RETURN(w, BlockDepthwiseWeights(out, w, change.block));
  } else {
    HEDDLE_ASSIGN_OR_RETURN(
        w, BlockWeights(out, w, change.in_blocks, change.out_blocks, change.block));
  }
  return node;
}

absl::StatusOr<Node> LastForm(GraphBuilder& out, Node node, const LayoutRule::Change& change,
                              int n) {
  ValueId& w = node.inputs[1];
  const Shape weights = out.Type(w).shape;
  const std::string name = out.Name(w) + "/channels_last";
  const int64_t groups = AttrsOf(node).Int("groups");
  const bool depthwise = groups > 1 && weights[1] == 1 && weights[0] == groups;
  const int64_t merged =
      depthwise ? 1 : MergedGroups(groups, weights[1], weights[0] / groups, change.lanes);
  const TensorData* data = out.ConstantData(w);
  if (merged > 1 && data != nullptr) {
    w = out.Constant(out.Name(w) + "/merged", MergeGroups(*data, groups, merged));
    node.attrs["groups"] = groups / merged;
    node.attrs["zero_share"] = merged;
  }
  Shape perm(n + 2);
  std::iota(perm.begin(), perm.end(), 2);
  perm[n] = 1;
  perm[n + 1] = 0;
  HEDDLE_ASSIGN_OR_RETURN(w, out.Add(OpKind::kTranspose, {w}, {{"perm", perm}}, name));
  if (!depthwise) return node;
  Shape taps(weights.begin() + 2, weights.end());
  taps.push_back(groups);
  HEDDLE_ASSIGN_OR_RETURN(w, out.Add(OpKind::kReshape, {w}, {{"shape", taps}}, name));
  node.attrs.erase("groups");
  node.attrs.erase("layout");
  node.kind = kDepthwiseConvolutions[n - 1];
  return node;
}

OpDef ConvOp(int n) {
  const OpKind kind = kConvolutions[n - 1];
  OpDef op{kind, FusionClass::kComplexOutFusable};
  op.family = OpFamily::kConvolution;
  op.attrs = WindowAttrs();
  op.attrs.push_back({"groups", int64_t{1}});
  op.attrs.push_back({"zero_share", int64_t{1}});
  op.attrs.push_back(SingleAttr());
  op.infer = [n](Types in, const OpAttrs& attrs) -> absl::StatusOr<TensorType> {
    HEDDLE_RETURN_IF_ERROR(CheckConvOperands(in, n + 2));
    HEDDLE_ASSIGN_OR_RETURN(ConvShape c, ParseConv(in[0].shape, in[1].shape, attrs, n));
    return TensorType{SumType(in[0].dtype, attrs), c.out};
  };
  op.express = [kind, n](tensor::Builder& b, Tensors in,
                         const OpAttrs& attrs) -> absl::StatusOr<tensor::Tensor> {
    HEDDLE_ASSIGN_OR_RETURN(ConvShape c, ParseConv(in[0].shape(), in[1].shape(), attrs, n));
    const bool depthwise = c.groups > 1 && c.groups == c.in_channels && c.groups == c.out_channels;
    const OpKind stage = depthwise ? kDepthwiseConvolutions[n - 1] : kind;
    return ExpressConv(b, NameOf(stage), in[0], in[1], c);
  };
  op.flops = [n](const OpUse& use) {
    auto c = ParseConv(use.inputs[0].shape, use.inputs[1].shape, use.attrs, n);
    if (!c.ok()) return 0.0;
    return 2.0 * Product(use.output.shape) * c->group_inputs * Product(c->w.kernel) /
           static_cast<double>(use.attrs.Int("zero_share"));
  };
  op.layout.last = IsChannelsFirst;
  op.layout.blocked = HasBlockedForm;
  op.layout.form = [n](GraphBuilder& out, Node node, const LayoutRule::Change& change) {
    return change.layout == Layout::kChannelsBlocked ? BlockedForm(out, std::move(node), change, n)
                                                     : LastForm(out, std::move(node), change, n);
  };
  op.laws.channels_of_weights = [](const OpUse&) { return 0; };
  return op;
}

// ---- depthwise, channels last ----

// The same geometry as a convolution with as many groups as channels.
absl::StatusOr<ConvShape> ParseDepthwise(const Shape& x, const Shape& weights, const OpAttrs& attrs,
                                         int n) {
  if (static_cast<int>(weights.size()) != n + 1) {
    return BadInput(absl::StrCat("needs weights of rank ", n + 1, ", got ", ShapeText(weights)));
  }
  Shape full(weights.begin(), weights.begin() + n);
  full.insert(full.end(), {1, weights[n]});
  return ParseGroups(x, full, attrs, n, Layout::kChannelsLast, weights[n]);
}

OpDef DepthwiseOp(int n) {
  const OpKind kind = kDepthwiseConvolutions[n - 1];
  OpDef op{kind, FusionClass::kComplexOutFusable};
  op.attrs = WindowAttrs();
  op.attrs.push_back(SingleAttr());
  op.infer = [n](Types in, const OpAttrs& attrs) -> absl::StatusOr<TensorType> {
    HEDDLE_RETURN_IF_ERROR(CheckConvOperands(in, n + 2));
    HEDDLE_ASSIGN_OR_RETURN(ConvShape c, ParseDepthwise(in[0].shape, in[1].shape, attrs, n));
    return TensorType{SumType(in[0].dtype, attrs), c.out};
  };
  op.express = [kind, n](tensor::Builder& b, Tensors in,
                         const OpAttrs& attrs) -> absl::StatusOr<tensor::Tensor> {
    HEDDLE_ASSIGN_OR_RETURN(ConvShape c, ParseDepthwise(in[0].shape(), in[1].shape(), attrs, n));
    const Window& w = c.w;
    tensor::Tensor padded = PadForWindow(b, in[0], w, c.out, ir::Zero(in[0].dtype()));
    return b.Reduce(NameOf(kind), c.out, w.kernel, ReduceOp::kSum,
                    [&](tensor::Iters s, tensor::Iters k) {
                      std::vector<Expr> tap(k.begin(), k.end());
                      tap.push_back(s[n + 1]);
                      return padded.At(w.Arrange(s[0], s[n + 1], TapIndex(w, SpatialOf(w, s), k))) *
                             in[1].At(std::move(tap));
                    });
  };
  op.flops = [n](const OpUse& use) {
    const Shape& weights = use.inputs[1].shape;
    return 2.0 * Product(use.output.shape) * Product(Shape(weights.begin(), weights.begin() + n));
  };
  return op;
}

}  // namespace

void AppendConvolutionOps(std::vector<OpDef>& ops) {
  for (int n = 1; n <= 3; ++n) {
    ops.push_back(ConvOp(n));
    ops.push_back(DepthwiseOp(n));
  }
}

}  // namespace heddle::graph
