// Transposed convolutions: conv_transpose1d..3d. out[p] is the sum of x[i] * w[k] over all i and k
// with p = i * stride + k * dilation - begin. "output_padding" adds to the end of the output.
//
// With channels first, weights are [I, O/groups, k..], and every case is a convolution of the input
// with zeros between its elements. With channels last, weights are [k.., I, O], and each output
// position reads only the taps that meet it; their number is the same for every position. That form
// needs one group, no dilation, and kernels that are multiples of the stride (LastTransposedForm pads others
// with zeros).
#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "compiler/graph/core/graph_builder.h"
#include "compiler/graph/ops/op_util.h"
#include "compiler/graph/ops/sum_type.h"
#include "compiler/graph/ops/window.h"

namespace heddle::graph {
namespace {

using ir::Expr;
using ir::ReduceOp;

struct TransposedShape {
  Window w;
  int64_t groups, group_inputs, group_outputs;
  Shape out;
};

absl::StatusOr<TransposedShape> ParseTransposed(const Shape& x, const Shape& weights,
                                                const OpAttrs& attrs, int n) {
  if (static_cast<int>(weights.size()) != n + 2) {
    return BadInput(absl::StrCat("needs weights of rank ", n + 2, ", got ", ShapeText(weights)));
  }
  const Layout layout = LayoutOf(attrs);
  const bool last = layout == Layout::kChannelsLast;
  TransposedShape c;
  HEDDLE_ASSIGN_OR_RETURN(c.w, ParseWindow(attrs, layout,
                                           last ? Shape(weights.begin(), weights.begin() + n)
                                                : Shape(weights.begin() + 2, weights.end()),
                                           n + 2));
  const int64_t in_channels = x[c.w.ChannelAxis()];
  c.groups = attrs.Int("groups");
  if (c.groups < 1 || in_channels % c.groups != 0 || weights[last ? n : 0] != in_channels) {
    return BadInput(absl::StrCat("weights ", ShapeText(weights), " do not fit input ", ShapeText(x),
                                 " in ", c.groups, " groups"));
  }
  c.group_inputs = in_channels / c.groups;
  c.group_outputs = weights[last ? n + 1 : 1];
  Shape extra = attrs.Ints("output_padding");
  extra.resize(n, 0);
  Shape spatial;
  for (int i = 0; i < n; ++i) {
    if (last && (c.groups != 1 || c.w.dilations[i] != 1 || c.w.kernel[i] % c.w.strides[i] != 0)) {
      return BadInput("channels last needs one group, no dilation and a kernel of whole strides");
    }
    spatial.push_back((x[c.w.SpatialAxis(i)] - 1) * c.w.strides[i] + c.w.Reach(i) - c.w.begin[i] -
                      c.w.end[i] + extra[i]);
    if (spatial.back() < 1)
      return BadInput(absl::StrCat("the output of input ", ShapeText(x), " is empty"));
  }
  c.out = c.w.Arrange(x[0], c.group_outputs * c.groups, spatial);
  return c;
}

// ---- Channels first ----

// The input with stride-1 zeros between its elements and enough zeros around it. The rest is a
// plain convolution.
tensor::Tensor Spread(tensor::Builder& b, const tensor::Tensor& x, const TransposedShape& c) {
  Shape extents = x.shape();
  for (int i = 0; i < c.w.n; ++i) extents[2 + i] = c.out[2 + i] + c.w.Reach(i) - 1;
  return b.Compute("spread", extents, [&](tensor::Iters s) {
    std::vector<Expr> index{s[0], s[1]};
    Expr inside;
    const auto require = [&](Expr e) {
      inside = inside ? ir::And(inside, std::move(e)) : std::move(e);
    };
    for (int i = 0; i < c.w.n; ++i) {
      Expr from = s[2 + i] - ir::Int(c.w.Reach(i) - 1 - c.w.begin[i]);
      Expr at = ir::FloorDiv(from, ir::Int(c.w.strides[i]));
      require(ir::Le(ir::Int(0), at));
      require(ir::Lt(at, ir::Int(x.shape()[2 + i])));
      if (c.w.strides[i] > 1) {
        require(ir::Make(ir::Op::kEq, {ir::FloorMod(from, ir::Int(c.w.strides[i])), ir::Int(0)}));
      }
      index.push_back(std::move(at));
    }
    return ir::Select(inside, x.At(std::move(index)), ir::Zero(x.dtype()));
  });
}

tensor::Tensor ExpressSpread(tensor::Builder& b, const std::string& name, const tensor::Tensor& x,
                             const tensor::Tensor& weights, const TransposedShape& c) {
  const int n = c.w.n;
  tensor::Tensor spread = Spread(b, x, c);
  Shape taps{c.group_inputs};
  taps.insert(taps.end(), c.w.kernel.begin(), c.w.kernel.end());
  return b.Reduce(name, c.out, taps, ReduceOp::kSum, [&](tensor::Iters s, tensor::Iters r) {
    Expr group = c.groups == 1 ? ir::Int(0) : ir::FloorDiv(s[1], ir::Int(c.group_outputs));
    Expr channel = group * ir::Int(c.group_inputs) + r[0];
    Expr o = c.groups == 1 ? s[1] : ir::FloorMod(s[1], ir::Int(c.group_outputs));
    std::vector<Expr> from{s[0], channel}, tap{channel, o};
    for (int i = 0; i < n; ++i) {
      from.push_back(s[2 + i] +
                     (ir::Int(c.w.kernel[i] - 1) - r[1 + i]) * ir::Int(c.w.dilations[i]));
      tap.push_back(r[1 + i]);
    }
    return spread.At(std::move(from)) * weights.At(std::move(tap));
  });
}

// ---- Channels last ----

// Let output position p = q * stride + phase, and let the kernel be J strides long. Then p meets
// the taps k = (phase + begin) mod stride + j * stride, j < J, at the inputs i = q + (phase +
// begin) div stride - j. So each phase is a convolution with its own weights, and the results are
// interleaved.
tensor::Tensor ExpressPhases(tensor::Builder& b, const std::string& name, const tensor::Tensor& x,
                             const tensor::Tensor& weights, const TransposedShape& c) {
  const Window& w = c.w;
  const int n = w.n;
  Shape phases{x.shape()[0]}, positions, taps, before(n + 2, 0), extents = x.shape();
  for (int i = 0; i < n; ++i) {
    const int64_t stride = w.strides[i], d = w.SpatialAxis(i);
    phases.push_back(stride);
    positions.push_back((c.out[d] + stride - 1) / stride);
    taps.push_back(w.kernel[i] / stride);
    const int64_t first = w.begin[i] / stride - (taps[i] - 1);
    const int64_t last = positions[i] - 1 + (stride - 1 + w.begin[i]) / stride;
    before[d] = std::max<int64_t>(-first, 0);
    extents[d] = before[d] + std::max(last + 1, x.shape()[d]);
  }
  taps.push_back(c.group_inputs);
  Shape grid = phases;  // N, phases.., positions.., O
  grid.insert(grid.end(), positions.begin(), positions.end());
  grid.push_back(c.group_outputs);
  tensor::Tensor padded = PadTo(b, x, before, extents, ir::Zero(x.dtype()));
  Shape by_phase(w.strides.begin(), w.strides.end());  // phases.., taps.., I, O
  by_phase.insert(by_phase.end(), taps.begin(), taps.end());
  by_phase.push_back(c.group_outputs);
  // The weights of each phase, in the order in which they are read. If the weights are constant,
  // this is computed when the module is made.
  tensor::Tensor phased = b.Compute(name + "_phases", by_phase, [&](tensor::Iters s) {
    std::vector<Expr> tap;
    for (int i = 0; i < n; ++i) {
      const Expr stride = ir::Int(w.strides[i]);
      tap.push_back(ir::FloorMod(s[i] + ir::Int(w.begin[i]), stride) + s[n + i] * stride);
    }
    tap.insert(tap.end(), {s[2 * n], s[2 * n + 1]});
    return weights.At(std::move(tap));
  });
  tensor::Tensor sums =
      b.Reduce(name, grid, taps, ReduceOp::kSum, [&](tensor::Iters s, tensor::Iters r) {
        std::vector<Expr> at, tap(s.begin() + 1, s.begin() + 1 + n);
        for (int i = 0; i < n; ++i) {
          const Expr stride = ir::Int(w.strides[i]), phase = s[1 + i] + ir::Int(w.begin[i]);
          at.push_back(s[1 + n + i] + ir::FloorDiv(phase, stride) - r[i] +
                       ir::Int(before[w.SpatialAxis(i)]));
        }
        tap.insert(tap.end(), r.begin(), r.begin() + n);
        tap.insert(tap.end(), {r[n], s[2 * n + 1]});
        return padded.At(w.Arrange(s[0], r[n], at)) * phased.At(std::move(tap));
      });
  return b.Compute(name + "_interleave", c.out, [&](tensor::Iters s) {
    std::vector<Expr> at{s[0]};
    for (int i = 0; i < n; ++i)
      at.push_back(ir::FloorMod(s[w.SpatialAxis(i)], ir::Int(w.strides[i])));
    for (int i = 0; i < n; ++i)
      at.push_back(ir::FloorDiv(s[w.SpatialAxis(i)], ir::Int(w.strides[i])));
    at.push_back(s[w.ChannelAxis()]);
    return sums.At(std::move(at));
  });
}

// ---- The form with channels last ----

bool HasLastForm(const OpUse& use) {
  const Shape& dilations = use.attrs.Ints("dilations");
  return IsChannelsFirst(use) && use.attrs.Int("groups") == 1 &&
         std::all_of(dilations.begin(), dilations.end(), [](int64_t d) { return d == 1; });
}

// Appends zeros to the kernel until it is a multiple of the stride. The padding crops the results
// of these zeros.
absl::StatusOr<Node> LastTransposedForm(GraphBuilder& out, Node node, int n) {
  ValueId& w = node.inputs[1];
  const Shape weights = out.Type(w).shape;
  const std::string name = out.Name(w) + "/channels_last";
  Shape strides = AttrsOf(node).Ints("strides"), pads = AttrsOf(node).Ints("pads"), end(n + 2, 0);
  strides.resize(n, 1);
  pads.resize(2 * n, 0);
  for (int i = 0; i < n; ++i) {
    end[2 + i] = (strides[i] - weights[2 + i] % strides[i]) % strides[i];
    pads[n + i] += end[2 + i];
  }
  if (end != Shape(n + 2, 0)) {
    HEDDLE_ASSIGN_OR_RETURN(
        w, out.Add(OpKind::kPad, {w}, {{"begin", Shape(n + 2, 0)}, {"end", end}}, name));
  }
  Shape perm(n + 2);
  std::iota(perm.begin(), perm.end(), 2);
  perm[n] = 0;
  perm[n + 1] = 1;
  HEDDLE_ASSIGN_OR_RETURN(w, out.Add(OpKind::kTranspose, {w}, {{"perm", perm}}, name));
  node.attrs["pads"] = pads;
  return node;
}

OpDef TransposedOp(int n) {
  const OpKind kind = kTransposedConvolutions[n - 1];
  OpDef op{kind, FusionClass::kComplexOutFusable};
  op.family = OpFamily::kTransposedConvolution;
  op.attrs = WindowAttrs();
  op.attrs.push_back({"groups", int64_t{1}});
  op.attrs.push_back({"output_padding", Shape{}});
  op.attrs.push_back(SingleAttr());
  op.infer = [n](Types in, const OpAttrs& attrs) -> absl::StatusOr<TensorType> {
    HEDDLE_RETURN_IF_ERROR(CheckConvOperands(in, n + 2));
    HEDDLE_ASSIGN_OR_RETURN(TransposedShape c, ParseTransposed(in[0].shape, in[1].shape, attrs, n));
    return TensorType{SumType(in[0].dtype, attrs), c.out};
  };
  op.express = [kind, n](tensor::Builder& b, Tensors in,
                         const OpAttrs& attrs) -> absl::StatusOr<tensor::Tensor> {
    HEDDLE_ASSIGN_OR_RETURN(TransposedShape c,
                            ParseTransposed(in[0].shape(), in[1].shape(), attrs, n));
    const auto express = c.w.channels_last ? ExpressPhases : ExpressSpread;
    return express(b, NameOf(kind), in[0], in[1], c);
  };
  op.flops = [n](const OpUse& use) {
    auto c = ParseTransposed(use.inputs[0].shape, use.inputs[1].shape, use.attrs, n);
    if (!c.ok()) return 0.0;
    // Every input element meets every tap of its group's outputs. As for other convolutions, taps
    // on padding count; here they give results that are cropped.
    return 2.0 * Product(use.inputs[0].shape) * Product(c->w.kernel) * c->group_outputs;
  };
  op.layout.last = HasLastForm;
  op.layout.form = [n](GraphBuilder& out, Node node, const LayoutRule::Change&) {
    return LastTransposedForm(out, std::move(node), n);
  };
  op.laws.channels_of_weights = [](const OpUse& use) {
    return use.attrs.Int("groups") == 1 ? 1 : -1;
  };
  return op;
}

}  // namespace

void AppendTransposedConvolutionOps(std::vector<OpDef>& ops) {
  for (int n = 1; n <= 3; ++n) ops.push_back(TransposedOp(n));
}

}  // namespace heddle::graph
