#include "compiler/plan/kernel_costs.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "compiler/graph/core/operator.h"

namespace heddle::plan {
namespace {

// The weight of a more general mean, in measurements. With as many of its own, a mean counts half.
constexpr double kPooling = 4;
// The spread of a kernel's factor where nothing was measured: within a factor of 2.7, two times of three.
constexpr double kUnknownSpread = 1;
constexpr int kFewMeasurements = 2;  // fewer say nothing of the spread

double Bytes(const graph::TensorType& type) {
  return static_cast<double>(graph::NumElements(type)) * ir::SizeOf(type.dtype);
}

// The node that the kernel is built around: the one that is not injective, or the last.
const graph::Node& Anchor(const graph::FusedGraph& fused, const graph::Group& group) {
  for (int n : group.nodes) {
    const graph::Node& node = fused.graph.nodes[static_cast<size_t>(n)];
    if (graph::Def(node.kind).fusion != graph::FusionClass::kInjective) return node;
  }
  return fused.graph.nodes[static_cast<size_t>(group.nodes.back())];
}

std::string FormOf(const graph::Node& anchor) {
  const auto layout = anchor.attrs.find("layout");
  return absl::StrCat(graph::NameOf(anchor.kind), " ",
                      layout == anchor.attrs.end() ? "" : graph::ToText(layout->second));
}

}  // namespace

double KernelCosts::EstimateNs(const graph::FusedGraph& fused, const graph::Group& group) const {
  double bytes = 0;
  for (const auto* values : {&group.inputs, &group.outputs}) {
    for (graph::ValueId v : *values)
      bytes += Bytes(fused.graph.values[static_cast<size_t>(v)].type);
  }
  const machine::GraphCore& core = target_.graph_core;
  return core.call_ns + std::max(group.flops / core.peak_gflops, bytes / core.bytes_per_ns);
}

void KernelCosts::Learn(const graph::FusedGraph& fused) {
  for (const graph::Group& group : fused.groups) {
    const auto measured = measured_ns_.find(group.key);
    if (measured == measured_ns_.end() || !(measured->second > 0)) continue;
    const double factor = std::log(measured->second / EstimateNs(fused, group));
    if (!learned_.emplace(group.key, factor).second) continue;
    const graph::Node& anchor = Anchor(fused, group);
    for (Mean* mean :
         {&all_, &by_operator_[graph::NameOf(anchor.kind)], &by_form_[FormOf(anchor)]}) {
      mean->sum += factor;
      ++mean->count;
    }
    squares_ += factor * factor;
  }
}

KernelCost KernelCosts::Of(const graph::FusedGraph& fused, const graph::Group& group) const {
  const auto measured = measured_ns_.find(group.key);
  if (measured != measured_ns_.end() && measured->second > 0)
    return {measured->second, 0, KernelCost::Source::kRecord};
  const double estimate = EstimateNs(fused, group);
  if (all_.count == 0) return {estimate, kUnknownSpread, KernelCost::Source::kMachine};
  const graph::Node& anchor = Anchor(fused, group);
  const auto pooled = [](const std::map<std::string, Mean>& means, const std::string& name,
                         double general) {
    const auto found = means.find(name);
    if (found == means.end()) return general;
    return (found->second.sum + kPooling * general) / (found->second.count + kPooling);
  };
  const double all = all_.sum / all_.count;
  const double op = pooled(by_operator_, graph::NameOf(anchor.kind), all);
  const double form = pooled(by_form_, FormOf(anchor), op);
  const double variance = squares_ / all_.count - all * all;
  const double spread =
      all_.count < kFewMeasurements ? kUnknownSpread : std::sqrt(std::max(variance, 0.0));
  return {estimate * std::exp(form), spread, KernelCost::Source::kLearned};
}

}  // namespace heddle::plan
