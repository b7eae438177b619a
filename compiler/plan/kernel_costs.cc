#include "compiler/plan/kernel_costs.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "base/quantiles.h"
#include "compiler/graph/core/operator.h"

namespace heddle::plan {
namespace {

// The spread of a kernel's factor where nothing was measured: within a factor of 2.7, two times of three.
constexpr double kUnknownSpread = 1;
// A prediction is never better than this, however well the known kernels agree.
constexpr double kLeastSpread = 0.05;
constexpr size_t kFewKernels = PooledMeans::kFewest;  // fewer say nothing of the spread

std::string TextOf(const graph::Node& node, const char* attribute) {
  const auto found = node.attrs.find(attribute);
  return found == node.attrs.end() ? "" : graph::ToText(found->second);
}

// Without its factor.
KernelFactor ClassesOf(const graph::FusedGraph& fused, const graph::Group& group) {
  const graph::Node& anchor = AnchorOf(fused.graph, group);
  double results = 0;
  for (graph::ValueId v : anchor.outputs)
    results +=
        static_cast<double>(graph::NumElements(fused.graph.values[static_cast<size_t>(v)].type));
  const double operations = std::max(1.0, group.flops / std::max(1.0, results));
  const auto scale = std::lround(std::log2(operations) / 2);
  // Whether the kernel itself transposes an operand.
  const bool columns = std::any_of(group.nodes.begin(), group.nodes.end(), [&](int n) {
    const graph::ValueId made = fused.graph.nodes[static_cast<size_t>(n)].outputs[0];
    return anchor.kind == graph::OpKind::kMatmul &&
           std::count(anchor.inputs.begin(), anchor.inputs.end(), made) != 0;
  });
  // A constant matrix is packed when the module is made. One that is computed is read as it lies.
  const bool constant =
      std::any_of(anchor.inputs.begin(), anchor.inputs.end(),
                  [&](graph::ValueId v) { return fused.graph.constants.contains(v); });
  return {group.key, graph::NameOf(anchor.kind),
          absl::StrCat(TextOf(anchor, "layout"), constant ? " by a constant" : "",
                       columns ? " by columns" : ""),
          absl::StrCat(TextOf(anchor, "strides"), " ", scale)};
}

PooledMeans::Classes NamesOf(const KernelFactor& kernel) {
  const std::string layout = absl::StrCat(kernel.op, " ", kernel.layout);
  const std::string window = absl::StrCat(layout, " ", kernel.window);
  return {"", kernel.op, layout, window, absl::StrCat(window, " ", kernel.key)};
}

PredictionError Summarise(const std::vector<double>& errors) {
  if (errors.size() < kFewKernels) return {};
  double squares = 0;
  for (const double error : errors) squares += error * error;
  return {static_cast<int>(errors.size()), Median(errors),
          std::sqrt(squares / static_cast<double>(errors.size()))};
}

double SquaresOf(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value * value;
  return sum;
}

}  // namespace

const graph::Node& AnchorOf(const graph::Graph& graph, const graph::Group& group) {
  for (int n : group.nodes) {
    const graph::Node& node = graph.nodes[static_cast<size_t>(n)];
    if (graph::Def(node.kind).fusion != graph::FusionClass::kInjective) return node;
  }
  return graph.nodes[static_cast<size_t>(group.nodes.back())];
}

KernelCosts::KernelCosts(const machine::TargetInfo& target,
                         std::map<std::string, double> measured_ns, const Experience& experience)
    : call_ns_(target.graph_speed.call_ns),
      may_be_warm_(target.execution == machine::Execution::kThreads),
      roofline_(target),
      measured_ns_(std::move(measured_ns)) {
  for (const KernelFactor& kernel : experience.device) earlier_.emplace(kernel.key, kernel);
  for (const KernelFactor& kernel : experience.others)
    others_.Add(NamesOf(kernel), kernel.log_factor);
  others_.Fit();
  Fit();
}

double KernelCosts::EstimateNs(const graph::FusedGraph& fused, const graph::Group& group) const {
  const KernelWork work = WorkOf(fused, group, TouchedBytes(fused, group));
  if (!may_be_warm_ || !group.timed_warm) return call_ns_ + roofline_.ColdNs(work);
  const double distance = work.constant_bytes + work.activation_bytes;
  return call_ns_ + roofline_.Ns(work, work.constant_bytes / roofline_.RateAt(work, distance));
}

KernelCosts::Deviations KernelCosts::DeviationsOf(const std::vector<KernelFactor>& kernels) const {
  const auto fit = [&](bool from_others) {
    Deviations made;
    made.from_others = from_others;
    for (const KernelFactor& kernel : kernels) {
      const PooledMeans::Classes names = NamesOf(kernel);
      made.means.Add(names, kernel.log_factor - (from_others ? others_.Of(names) : 0));
    }
    made.errors = made.means.Fit();
    return made;
  };
  Deviations with = fit(true);
  if (others_.size() == 0 || kernels.size() < kFewKernels) return with;
  Deviations without = fit(false);
  return SquaresOf(without.errors) < SquaresOf(with.errors) ? without : with;
}

void KernelCosts::Fit() {
  std::vector<KernelFactor> known = learned_;
  for (const auto& [key, kernel] : earlier_) {
    const auto measured = measured_ns_.find(key);
    if (measured == measured_ns_.end() || !(measured->second > 0)) known.push_back(kernel);
  }
  device_ = DeviationsOf(known);
  const auto own = static_cast<std::ptrdiff_t>(learned_.size());
  error_ = Summarise({device_.errors.begin(), device_.errors.begin() + own});
  const PredictionError all = Summarise(device_.errors);
  const double rms = error_.kernels > 0 ? error_.rms : all.rms;
  spread_ = all.kernels > 0 ? std::max(rms, kLeastSpread) : kUnknownSpread;
}

void KernelCosts::Learn(const graph::FusedGraph& fused) {
  const size_t before = learned_.size();
  for (const graph::Group& group : fused.groups) {
    const auto measured = measured_ns_.find(group.key);
    if (measured == measured_ns_.end() || !(measured->second > 0)) continue;
    if (!seen_.insert(group.key).second) continue;
    KernelFactor kernel = ClassesOf(fused, group);
    kernel.log_factor = std::log(measured->second / EstimateNs(fused, group));
    learned_.push_back(std::move(kernel));
  }
  if (learned_.size() > before) Fit();
}

PredictionError KernelCosts::ErrorOfExperience() const {
  if (earlier_.empty() && others_.size() == 0) return {};
  std::vector<KernelFactor> kernels;
  for (const auto& [key, kernel] : earlier_) kernels.push_back(kernel);
  const Deviations device = DeviationsOf(kernels);
  std::vector<double> errors;
  for (const KernelFactor& kernel : learned_) {
    const auto same = earlier_.find(kernel.key);
    const bool known = same != earlier_.end();
    const PooledMeans::Classes names = NamesOf(known ? same->second : kernel);
    const double others = device.from_others ? others_.Of(names) : 0;
    const double own = known ? same->second.log_factor - others : 0;
    errors.push_back(
        std::abs(others + device.means.Of(names, known ? &own : nullptr) - kernel.log_factor));
  }
  return Summarise(errors);
}

KernelCost KernelCosts::Of(const graph::FusedGraph& fused, const graph::Group& group) const {
  const auto measured = measured_ns_.find(group.key);
  if (measured != measured_ns_.end() && measured->second > 0)
    return {measured->second, 0, KernelCost::Source::kRecord};
  const double estimate = EstimateNs(fused, group);
  if (device_.means.size() + others_.size() == 0)
    return {estimate, kUnknownSpread, KernelCost::Source::kMachine};
  if (const auto same = earlier_.find(group.key); same != earlier_.end())
    return {estimate * std::exp(same->second.log_factor), kLeastSpread,
            KernelCost::Source::kLearned};
  const PooledMeans::Classes names = NamesOf(ClassesOf(fused, group));
  const double others = device_.from_others ? others_.Of(names) : 0;
  return {estimate * std::exp(others + device_.means.Of(names)), spread_,
          KernelCost::Source::kLearned};
}

}  // namespace heddle::plan
