#include "compiler/plan/roofline.h"

#include <algorithm>
#include <map>

#include "compiler/graph/core/operator.h"
#include "compiler/machine/cold_timing.h"
#include "compiler/machine/worth_threads.h"

namespace heddle::plan {
namespace {

using graph::ValueId;

// What is read at a place that is looked up.
constexpr int64_t kLineBytes = 64;

int64_t Bytes(const graph::TensorType& type) {
  return graph::NumElements(type) * ir::SizeOf(type.dtype);
}

// OpDef::looked_up; 0 where it says nothing.
std::vector<int64_t> LookedUp(const graph::Graph& graph, const graph::Node& node) {
  const auto& looked_up = graph::Def(node.kind).looked_up;
  if (looked_up == nullptr) return std::vector<int64_t>(node.inputs.size(), 0);
  const std::vector<graph::TensorType> types = graph::InputTypes(graph, node);
  return looked_up(
      {types, graph.values[static_cast<size_t>(node.outputs[0])].type, graph::AttrsOf(node)});
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
    const std::vector<int64_t> places = LookedUp(graph, node);
    for (size_t k = 0; k < node.inputs.size(); ++k) {
      const ValueId v = node.inputs[k];
      const auto found = touched.find(v);
      if (found == touched.end()) continue;
      const graph::TensorType& type = graph.values[static_cast<size_t>(v)].type;
      int64_t read = Bytes(type);
      if (injective) read = results * ir::SizeOf(type.dtype);
      if (places[k] > 0) read = places[k] * kLineBytes;
      found->second = std::min(Bytes(type), found->second + read);
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

Roofline::Roofline(const machine::TargetInfo& target) : target_(target) {
  l2_bytes_ = static_cast<double>(target_.graph_speed.l2_bytes);
  l3_bytes_ = static_cast<double>(target_.graph_speed.l3_bytes);
}

double Roofline::ThreadsOf(const KernelWork& work) const {
  const machine::GraphSpeed& core = target_.graph_speed;
  const double rate =
      work.activation_bytes <= l2_bytes_ ? core.l2_read_bytes_per_ns : core.l3_read_bytes_per_ns;
  const double alone_ns = std::max(work.flops / core.peak_gflops, work.activation_bytes / rate);
  return machine::WorthThreads(alone_ns, target_) ? target_.target.threads : 1;
}

double Roofline::RateAt(const KernelWork& work, double distance) const {
  const machine::GraphSpeed& core = target_.graph_speed;
  const double rate = distance <= l2_bytes_   ? core.l2_read_bytes_per_ns
                      : distance <= l3_bytes_ ? core.l3_read_bytes_per_ns
                                              : core.memory_read_bytes_per_ns;
  return rate * ThreadsOf(work);
}

double Roofline::ColdRate(const KernelWork& work) const {
  return RateAt(work, static_cast<double>(machine::kFlushBytes) + work.constant_bytes +
                          work.activation_bytes);
}

double Roofline::Ns(const KernelWork& work, double constants_ns) const {
  return std::max(work.flops / (target_.graph_speed.peak_gflops * ThreadsOf(work)),
                  constants_ns + work.activation_bytes / RateAt(work, work.activation_bytes));
}

}  // namespace heddle::plan
