#include "compiler/plan/roofline.h"

#include <algorithm>
#include <map>

#include "compiler/graph/core/operator.h"
#include "compiler/machine/cold_timing.h"

namespace heddle::plan {
namespace {

using graph::ValueId;

int64_t Bytes(const graph::TensorType& type) {
  return graph::NumElements(type) * ir::SizeOf(type.dtype);
}

}  // namespace

std::vector<int64_t> TouchedBytes(const graph::FusedGraph& fused, const graph::Group& group) {
  const graph::Graph& graph = fused.graph;
  std::map<ValueId, int64_t> touched;
  for (ValueId v : group.inputs) touched[v] = 0;
  for (int n : group.nodes) {
    const graph::Node& node = graph.nodes[static_cast<size_t>(n)];
    const bool injective = graph::Def(node.kind).fusion == graph::FusionClass::kInjective;
    const int64_t results =
        graph::NumElements(graph.values[static_cast<size_t>(node.outputs[0])].type);
    for (ValueId v : node.inputs) {
      const auto found = touched.find(v);
      if (found == touched.end()) continue;
      const graph::TensorType& type = graph.values[static_cast<size_t>(v)].type;
      const int64_t all = Bytes(type);
      found->second =
          injective ? std::min(all, found->second + results * ir::SizeOf(type.dtype)) : all;
    }
  }
  std::vector<int64_t> bytes;
  for (ValueId v : group.inputs) bytes.push_back(touched.at(v));
  return bytes;
}

KernelWork WorkOf(const graph::FusedGraph& fused, const graph::Group& group,
                  const std::vector<int64_t>& touched) {
  KernelWork work;
  work.flops = group.flops;
  for (size_t i = 0; i < group.inputs.size(); ++i) {
    const bool constant = fused.graph.constants.contains(group.inputs[i]);
    (constant ? work.constant_bytes : work.activation_bytes) += static_cast<double>(touched[i]);
  }
  for (ValueId v : group.outputs)
    work.activation_bytes +=
        static_cast<double>(Bytes(fused.graph.values[static_cast<size_t>(v)].type));
  return work;
}

Roofline::Roofline(const machine::TargetInfo& target) {
  const machine::GraphSpeed& core = target.graph_speed;
  const double threads = std::max(1, target.target.threads);
  l2_bytes_ = static_cast<double>(core.l2_bytes);
  l3_bytes_ = static_cast<double>(core.l3_bytes);
  l2_rate_ = core.l2_read_bytes_per_ns * threads;
  l3_rate_ = core.l3_read_bytes_per_ns * threads;
  memory_rate_ = core.memory_read_bytes_per_ns * threads;
  flops_per_ns_ = core.peak_gflops * threads;
}

double Roofline::RateAt(double distance) const {
  return distance <= l2_bytes_ ? l2_rate_ : distance <= l3_bytes_ ? l3_rate_ : memory_rate_;
}

double Roofline::ColdRate(const KernelWork& work) const {
  return RateAt(static_cast<double>(machine::kFlushBytes) + work.constant_bytes +
                work.activation_bytes);
}

double Roofline::Ns(const KernelWork& work, double constants_ns) const {
  return std::max(work.flops / flops_per_ns_,
                  constants_ns + work.activation_bytes / RateAt(work.activation_bytes));
}

}  // namespace heddle::plan
