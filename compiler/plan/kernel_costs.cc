#include "compiler/plan/kernel_costs.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "compiler/graph/core/operator.h"

namespace heddle::plan {
namespace {

constexpr double kPoolings[] = {0.25, 0.5, 1, 2, 4, 8};
// The spread of a kernel's factor where nothing was measured: within a factor of 2.7, two times of three.
constexpr double kUnknownSpread = 1;
// A prediction is never better than this, however well the known kernels agree.
constexpr double kLeastSpread = 0.05;
constexpr size_t kFewKernels = 3;  // fewer say nothing of the spread

std::string TextOf(const graph::Node& node, const char* attribute) {
  const auto found = node.attrs.find(attribute);
  return found == node.attrs.end() ? "" : graph::ToText(found->second);
}

std::vector<std::string> ClassesOf(const graph::FusedGraph& fused, const graph::Group& group) {
  const graph::Node& anchor = AnchorOf(fused.graph, group);
  double results = 0;
  for (graph::ValueId v : anchor.outputs)
    results +=
        static_cast<double>(graph::NumElements(fused.graph.values[static_cast<size_t>(v)].type));
  const double operations = std::max(1.0, group.flops / std::max(1.0, results));
  const std::string op = graph::NameOf(anchor.kind);
  const std::string form = absl::StrCat(op, " ", TextOf(anchor, "layout"));
  const std::string window = absl::StrCat(form, " ", TextOf(anchor, "strides"), " ",
                                          std::lround(std::log2(operations) / 2));
  return {"", op, form, window};
}

}  // namespace

const graph::Node& AnchorOf(const graph::Graph& graph, const graph::Group& group) {
  for (int n : group.nodes) {
    const graph::Node& node = graph.nodes[static_cast<size_t>(n)];
    if (graph::Def(node.kind).fusion != graph::FusionClass::kInjective) return node;
  }
  return graph.nodes[static_cast<size_t>(group.nodes.back())];
}

double KernelCosts::EstimateNs(const graph::FusedGraph& fused, const graph::Group& group) const {
  return call_ns_ + roofline_.ColdNs(WorkOf(fused, group, TouchedBytes(fused, group)));
}

double KernelCosts::Factor(const Classes& classes, double pooling, const Known* without) const {
  double factor = 0;
  bool general = true;
  for (const std::string& name : classes) {
    const auto found = means_.find(name);
    if (found == means_.end()) break;
    Mean mean = found->second;
    if (without != nullptr) {
      mean.sum -= without->factor;
      --mean.count;
    }
    if (mean.count == 0) break;
    factor =
        general ? mean.sum / mean.count : (mean.sum + pooling * factor) / (mean.count + pooling);
    general = false;
  }
  return factor;
}

void KernelCosts::Fit() {
  error_ = {};
  if (known_.size() < kFewKernels) return;
  double least = -1;
  for (const double pooling : kPoolings) {
    std::vector<double> errors;
    double squares = 0;
    for (const Known& known : known_) {
      const double error = std::abs(Factor(known.classes, pooling, &known) - known.factor);
      errors.push_back(error);
      squares += error * error;
    }
    if (least >= 0 && squares >= least) continue;
    least = squares;
    pooling_ = pooling;
    const auto middle = errors.begin() + static_cast<std::ptrdiff_t>(errors.size() / 2);
    std::nth_element(errors.begin(), middle, errors.end());
    error_ = {static_cast<int>(known_.size()), *middle,
              std::sqrt(squares / static_cast<double>(errors.size()))};
  }
}

void KernelCosts::Learn(const graph::FusedGraph& fused) {
  const size_t before = known_.size();
  for (const graph::Group& group : fused.groups) {
    const auto measured = measured_ns_.find(group.key);
    if (measured == measured_ns_.end() || !(measured->second > 0)) continue;
    if (!seen_.insert(group.key).second) continue;
    Known known{ClassesOf(fused, group), std::log(measured->second / EstimateNs(fused, group))};
    for (const std::string& name : known.classes) {
      means_[name].sum += known.factor;
      ++means_[name].count;
    }
    known_.push_back(std::move(known));
  }
  if (known_.size() > before) Fit();
}

KernelCost KernelCosts::Of(const graph::FusedGraph& fused, const graph::Group& group) const {
  const auto measured = measured_ns_.find(group.key);
  if (measured != measured_ns_.end() && measured->second > 0)
    return {measured->second, 0, KernelCost::Source::kRecord};
  const double estimate = EstimateNs(fused, group);
  if (known_.empty()) return {estimate, kUnknownSpread, KernelCost::Source::kMachine};
  const double factor = Factor(ClassesOf(fused, group), pooling_, nullptr);
  return {estimate * std::exp(factor),
          known_.size() < kFewKernels ? kUnknownSpread : std::max(error_.rms, kLeastSpread),
          KernelCost::Source::kLearned};
}

}  // namespace heddle::plan
