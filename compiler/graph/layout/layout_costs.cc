#include "compiler/graph/layout/layout_costs.h"

#include <algorithm>
#include <cmath>

#include "compiler/graph/core/operator.h"
#include "compiler/graph/ops/op_util.h"

namespace heddle::graph {
namespace {

// Images with so few channels stay channels last, and only the result is blocked.
constexpr int64_t kFewInputs = 4;

// How well `extent` elements use the lanes of a vector: the share of lanes that do work, times the
// speed of masked code if some do not.
double LaneUse(int64_t extent, int64_t element_bytes, const machine::TargetInfo& target) {
  const auto n = static_cast<double>(extent),
             lanes = static_cast<double>(target.graph_speed.vector_bytes / element_bytes);
  const double use = n / (std::ceil(n / lanes) * lanes);
  return use == 1 ? 1 : use * target.code.layout.masked;
}

int64_t BytesOf(const TensorType& type) {
  return NumElements(type) * static_cast<int64_t>(ir::SizeOf(type.dtype));
}

int64_t Ns(double ns) { return static_cast<int64_t>(std::llround(std::min(ns, 1e14))); }

// The time of a convolution with one group in the blocked layout, relative to the estimate with
// channels last, which assumes the direct form. `inputs`: channels of the image. `single`: it
// computes in f32.
double TimesOfLast(int64_t inputs, const Shape& kernel, const OpAttrs& attrs,
                   const machine::TargetInfo& target, bool single) {
  const machine::LayoutFit& fit = target.code.layout;
  const auto all = [](const Shape& values, int64_t wanted) {
    return std::all_of(values.begin(), values.end(), [&](int64_t v) { return v == wanted; });
  };
  if (inputs <= kFewInputs) return 1;
  if (all(kernel, 1)) {
    if (!all(attrs.Ints("strides"), 1)) return fit.blocked_strided_pixels;
    return target.target.threads > 1 ? fit.blocked_threads : 1;
  }
  const bool winograd = target.target.winograd && single && kernel.size() == 2 && all(kernel, 3) &&
                        all(attrs.Ints("strides"), 1) && all(attrs.Ints("dilations"), 1);
  return winograd ? fit.blocked_without_winograd : fit.blocked_window;
}

LayoutProblem::Operator ConvolutionNs(const Graph& graph, const Node& node, double memory_ns,
                                      const machine::TargetInfo& target) {
  const machine::GraphSpeed& core = target.graph_speed;
  const machine::LayoutFit& fit = target.code.layout;
  const Shape& weights = graph.values[node.inputs[1]].type.shape;
  const TensorType& out = graph.values[node.outputs[0]].type;
  const double flops = Flops(graph, node);
  const OpAttrs attrs = AttrsOf(node);
  const Shape& strides = attrs.Ints("strides");
  const int64_t groups = attrs.Int("groups");
  const bool transposed = Def(node.kind).family == OpFamily::kTransposedConvolution;
  machine::LayoutFit::Share share = transposed ? fit.transposed : fit.convolution;
  // With channels last, a vector lies within a group, unless each group is one channel.
  int64_t channels = out.shape[1] / groups;
  bool near = false;  // a depthwise convolution whose data fit the second-level cache
  // Halves are computed in f32, in which the measurements were made.
  const ir::DType dtype = ir::IsHalf(out.dtype) ? ir::DType::kF32 : out.dtype;
  const bool single = dtype == ir::DType::kF32;
  double blocked =
      TimesOfLast(weights[1], Shape(weights.begin() + 2, weights.end()), attrs, target, single);
  if (!transposed && groups > 1 && weights[1] == 1) {
    const bool strided = !strides.empty() && strides.back() > 1;
    share = strided ? fit.strided_depthwise : fit.depthwise;
    channels = out.shape[1];
    near = single && memory_ns * core.bytes_per_ns <= static_cast<double>(core.l2_bytes);
  }
  const auto time = [&](double efficiency, int64_t lanes, double memory) {
    const double use = LaneUse(lanes, ir::SizeOf(dtype), target);
    return Ns(std::max(flops / (core.peak_gflops * efficiency * use), memory));
  };
  const int64_t first = time(share.first, out.shape.back(), memory_ns),
                last = time(share.last, channels, memory_ns);
  if (!near) return {first, last, Ns(static_cast<double>(last) * blocked)};
  const int64_t all =
      time(share.last, channels, memory_ns * core.bytes_per_ns / core.near_bytes_per_ns);
  return {first, last, last - Ns(static_cast<double>(all) * fit.blocked_depthwise_gain)};
}

}  // namespace

LayoutCost LayoutCosts::OperatorCost(const Graph& graph, const Node& node) const {
  double bytes = 0;
  for (ValueId v : node.inputs) bytes += static_cast<double>(BytesOf(graph.values[v].type));
  bytes += static_cast<double>(BytesOf(graph.values[node.outputs[0]].type));
  const double memory_ns = bytes / target_.graph_speed.bytes_per_ns;
  const OpFamily family = Def(node.kind).family;
  if (family == OpFamily::kConvolution || family == OpFamily::kTransposedConvolution)
    return {ConvolutionNs(graph, node, memory_ns, target_)};
  const bool pool = family == OpFamily::kPool;
  return {{Ns(pool ? memory_ns * target_.code.layout.pool_of_planes : memory_ns), Ns(memory_ns),
           Ns(memory_ns)}};
}

bool LooksTheSame(const TensorType& type) {
  const int64_t channels = type.shape.size() < 2 ? 1 : type.shape[1];
  const int64_t batch = type.shape.empty() ? 1 : type.shape[0];
  return channels == 1 || NumElements(type) == channels * batch;
}

int64_t LayoutCosts::MoveNs(const TensorType& type) const {
  // Nothing moves, but the reshape separates kernels that would fuse.
  if (LooksTheSame(type)) return 1;
  const machine::GraphSpeed& core = target_.graph_speed;
  return Ns(core.call_ns + 2 * static_cast<double>(BytesOf(type)) / core.bytes_per_ns);
}

LayoutCost MeasuredLayoutCosts::OperatorCost(const Graph& graph, const Node& node) const {
  const LayoutCost estimate = LayoutCosts::OperatorCost(graph, node);
  const auto found = ns_by_node_.find(node.name);
  if (found == ns_by_node_.end()) return estimate;
  const auto is_known = [&](Layout layout) {
    return found->second.Cost(layout) != LayoutProblem::kNever;
  };
  const auto known = std::count_if(kLayouts.begin(), kLayouts.end(), is_known);
  if (known < 2) return estimate;
  const Layout by =
      is_known(Layout::kChannelsLast) ? Layout::kChannelsLast : Layout::kChannelsFirst;
  const auto measured = static_cast<double>(found->second.Cost(by)),
             estimated = static_cast<double>(estimate.ns.Cost(by));
  const auto ns = [&](Layout layout) {
    if (is_known(layout)) return found->second.Cost(layout);
    return Ns(static_cast<double>(estimate.ns.Cost(layout)) * measured / std::max(estimated, 1.0));
  };
  return {{ns(Layout::kChannelsFirst), ns(Layout::kChannelsLast), ns(Layout::kChannelsBlocked)},
          true};
}

}  // namespace heddle::graph
