#include "compiler/graph/layout/layout_costs.h"

#include <algorithm>
#include <cmath>

#include "compiler/graph/core/operator.h"
#include "compiler/graph/ops/op_util.h"

namespace heddle::graph {
namespace {

// A core with two 64-byte multiply-add units at 2.7 GHz, and what default schedules make of it:
// medians over the kernels of the zoo's convolutional networks, each compiled in both layouts.
// Only ratios matter to the choice.
constexpr double kPeak = 170;      // GFLOP/s
constexpr double kBandwidth = 20;  // bytes a nanosecond, written or read
constexpr double kLanes = 16;
constexpr double kCallNs =
    1000;  // of a kernel of its own: the call, and what it drives from caches

struct Efficiency {
  double first, last;  // of the peak, with full vectors
};
constexpr Efficiency kConvolution = {0.33, 0.85};
constexpr Efficiency kTransposed = {0.08, 0.6};
constexpr Efficiency kDepthwise = {0.17, 0.35};
constexpr Efficiency kStridedDepthwise = {0.04, 0.35};  // channels first, lanes gather their pixels
// Blocked, in times of channels last, where that is as if convolutions had but one form: products
// of pixels are as fast (with two threads 0 to 9 % slower, mobilenet_v2), of every second one not;
// windows ask for padding more often; and 3 x 3 by steps of one has Winograd's form channels last
// only.
constexpr int64_t kFewInputs = 4;  // they stay last, so that only the result differs
constexpr double kBlockedStridedPixels = 1.3;
constexpr double kBlockedWindow = 1.08;
constexpr double kBlockedThreads = 1.05;
constexpr double kBlockedWithoutWinograd = 2.2;
// A strip of a depthwise convolution is read and written in one piece, where channels last, pixels
// are apart by all channels, which often fall into few sets of a cache: 1.1 to 1.5 times as fast
// where the images fit a second-level cache, the same where they come from beyond it.
constexpr double kDepthwiseGain = 0.17;
constexpr double kNearBytes = 2 << 20;
constexpr double kNearBandwidth = 2 * kBandwidth;
// Windows along a row of a plane do not fill vectors; times more than channels last.
constexpr double kPoolOfPlanes = 2.2;
// Registers that are not quite full are loaded and stored with masks.
constexpr double kMasked = 0.7;

// The share of vector lanes that do work when `extent` elements lie along them.
double LaneUse(int64_t extent) {
  const auto n = static_cast<double>(extent);
  const double use = n / (std::ceil(n / kLanes) * kLanes);
  return use == 1 ? 1 : use * kMasked;
}

int64_t Bytes(const TensorType& type) {
  return NumElements(type) * static_cast<int64_t>(ir::SizeOf(type.dtype));
}

int64_t Ns(double ns) { return static_cast<int64_t>(std::llround(std::min(ns, 1e14))); }

// Of a convolution in one group, of an image of so many channels.
double TimesOfLast(int64_t inputs, const Shape& kernel, const OpAttrs& attrs,
                   const KernelOptions& kernels, bool single) {
  const auto all = [](const Shape& values, int64_t wanted) {
    return std::all_of(values.begin(), values.end(), [&](int64_t v) { return v == wanted; });
  };
  if (inputs <= kFewInputs) return 1;
  if (all(kernel, 1)) {
    if (!all(attrs.Ints("strides"), 1)) return kBlockedStridedPixels;
    return kernels.threads > 1 ? kBlockedThreads : 1;
  }
  const bool winograd = kernels.winograd && single && kernel.size() == 2 && all(kernel, 3) &&
                        all(attrs.Ints("strides"), 1) && all(attrs.Ints("dilations"), 1);
  return winograd ? kBlockedWithoutWinograd : kBlockedWindow;
}

LayoutProblem::Operator ConvolutionNs(const Graph& graph, const Node& node, double memory_ns,
                                      const KernelOptions& kernels) {
  const Shape& weights = graph.values[node.inputs[1]].type.shape;
  const TensorType& out = graph.values[node.outputs[0]].type;
  const double flops = Flops(graph, node);
  const OpAttrs attrs = AttrsOf(node);
  const Shape& strides = attrs.Ints("strides");
  const int64_t groups = attrs.Int("groups");
  const bool transposed = Def(node.kind).family == OpFamily::kTransposedConvolution;
  Efficiency share = transposed ? kTransposed : kConvolution;
  // Channels last, a vector lies within a group, unless each group is one channel.
  int64_t channels = out.shape[1] / groups;
  bool near = false;  // a depthwise one within the second-level cache
  const bool single = out.dtype == ir::DType::kF32;  // what was measured
  double blocked =
      TimesOfLast(weights[1], Shape(weights.begin() + 2, weights.end()), attrs, kernels, single);
  if (!transposed && groups > 1 && weights[1] == 1) {
    const bool strided = !strides.empty() && strides.back() > 1;
    share = strided ? kStridedDepthwise : kDepthwise;
    channels = out.shape[1];
    near = single && memory_ns * kBandwidth <= kNearBytes;
  }
  const auto time = [&](double efficiency, int64_t lanes, double memory) {
    return Ns(std::max(flops / (kPeak * efficiency * LaneUse(lanes)), memory));
  };
  const int64_t first = time(share.first, out.shape.back(), memory_ns),
                last = time(share.last, channels, memory_ns);
  if (!near) return {first, last, Ns(static_cast<double>(last) * blocked)};
  const int64_t all = time(share.last, channels, memory_ns * kBandwidth / kNearBandwidth);
  return {first, last, last - Ns(static_cast<double>(all) * kDepthwiseGain)};
}

}  // namespace

LayoutCost LayoutCosts::OperatorCost(const Graph& graph, const Node& node) const {
  double bytes = 0;
  for (ValueId v : node.inputs) bytes += static_cast<double>(Bytes(graph.values[v].type));
  bytes += static_cast<double>(Bytes(graph.values[node.outputs[0]].type));
  const double memory_ns = bytes / kBandwidth;
  const OpFamily family = Def(node.kind).family;
  if (family == OpFamily::kConvolution || family == OpFamily::kTransposedConvolution)
    return {ConvolutionNs(graph, node, memory_ns, kernels_)};
  const bool pool = family == OpFamily::kPool;
  return {{Ns(pool ? memory_ns * kPoolOfPlanes : memory_ns), Ns(memory_ns), Ns(memory_ns)}};
}

bool LooksTheSame(const TensorType& type) {
  const int64_t channels = type.shape.size() < 2 ? 1 : type.shape[1];
  const int64_t batch = type.shape.empty() ? 1 : type.shape[0];
  return channels == 1 || NumElements(type) == channels * batch;
}

int64_t LayoutCosts::MoveNs(const TensorType& type) const {
  // Nothing moves, but the reshape keeps kernels apart that would fuse.
  if (LooksTheSame(type)) return 1;
  return Ns(kCallNs + 2 * static_cast<double>(Bytes(type)) / kBandwidth);
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
