#include "bench/common/workloads.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "bench/common/operator_table.h"
#include "client/zoo/zoo.h"
#include "compiler/driver/compile.h"
#include "compiler/driver/model_layout.h"
#include "compiler/graph/core/operator.h"

namespace heddle::bench {
namespace {

struct OneOperator {
  std::string name;
  graph::OpKind kind{};
  std::vector<int64_t> x{}, y{};
  graph::Attrs attrs{};
  bool constant = true;  // whether the second operand is a weight, not another activation
  ir::DType dtype = ir::DType::kF32;
};

absl::StatusOr<graph::Graph> GraphOf(const OneOperator& one) {
  const std::vector<graph::TensorType> types = {{one.dtype, one.x}, {one.dtype, one.y}};
  HEDDLE_ASSIGN_OR_RETURN(const graph::TensorType out,
                          graph::InferType(one.kind, types, one.attrs));
  graph::Graph graph;
  graph.values = {{"x", types[0]}, {"y", types[1]}, {"out", out}};
  graph.inputs = {0};
  if (one.constant) {
    graph.constants[1] = {types[1], nullptr};  // its elements are never read
  } else {
    graph.inputs.push_back(1);
  }
  graph.outputs = {2};
  graph.nodes = {{one.kind, graph::NameOf(one.kind), {0, 1}, {2}, one.attrs}};
  return graph;
}

// The workload of the kernel that fusion makes of the operator.
absl::StatusOr<Workload> WorkloadOf(const OneOperator& one) {
  HEDDLE_ASSIGN_OR_RETURN(graph::Graph graph, GraphOf(one));
  HEDDLE_ASSIGN_OR_RETURN(const graph::FusedGraph fused, graph::Fuse(std::move(graph)));
  if (fused.groups.size() != 1) return absl::InternalError("one operator made several kernels");
  const graph::Group& group = fused.groups[0];
  return Workload{one.name, group.label, group.workload, group.flops};
}

// The block of a depthwise convolution whose cheapest layout, alone, is channels in blocks; else 0.
// By the estimates no other convolution is cheaper in blocks than channels last.
absl::StatusOr<int64_t> DepthwiseBlock(const Operator& op, const graph::Attrs& window,
                                       const Target& target) {
  OneOperator one{op.name, graph::OpKind::kConv2d, {1, op.inputs, op.size, op.size}, {}, window};
  one.y = {op.inputs, 1, op.kernel, op.kernel};
  one.attrs["groups"] = op.inputs;
  HEDDLE_ASSIGN_OR_RETURN(const graph::Graph graph, GraphOf(one));
  HEDDLE_ASSIGN_OR_RETURN(const int64_t block, BlockFor(target));
  const graph::Node& node = graph.nodes[0];
  if (!graph::HasChannelsBlockedForm(graph, node, block)) return 0;
  machine::TargetInfo machine;  // costs of layouts depend on the target's options only
  machine.target = target;
  const auto ns = graph::LayoutCosts(machine).OperatorCost(graph, node).ns;
  return ns.blocked_ns < ns.last_ns ? block : 0;
}

absl::StatusOr<Workload> MatrixProduct(const Operator& op) {
  if (op.batch > 0)
    return WorkloadOf({op.name,
                       graph::OpKind::kMatmul,
                       {op.batch, op.m, op.k},
                       {op.batch, op.k, op.n},
                       {},
                       false});
  const ir::DType dtype = op.half ? ir::DType::kF16 : ir::DType::kF32;
  return WorkloadOf({op.name, graph::OpKind::kMatmul, {op.m, op.k}, {op.k, op.n}, {}, true, dtype});
}

absl::StatusOr<Workload> FromTable(const Operator& op, const WorkloadOptions& options) {
  if (op.kind == OperatorKind::kMatrixProduct) return MatrixProduct(op);
  const bool depthwise = op.kind == OperatorKind::kDepthwise;
  const int64_t begin = op.PadBegin(), end = op.PadEnd(), k = op.kernel;
  graph::Attrs attrs = {{"strides", std::vector<int64_t>{op.stride, op.stride}},
                        {"pads", std::vector<int64_t>{begin, begin, end, end}}};
  int64_t block = 0;
  if (depthwise && options.free_layout) {
    HEDDLE_ASSIGN_OR_RETURN(block, DepthwiseBlock(op, attrs, options.target));
  }
  OneOperator one{op.name, depthwise ? graph::OpKind::kDepthwiseConv2d : graph::OpKind::kConv2d};
  if (block > 0) {
    one.kind = graph::OpKind::kBlockedDepthwiseConv2d;
    one.x = {1, op.inputs / block, op.size, op.size, block};
    one.y = {op.inputs / block, k, k, block};
  } else {
    attrs["layout"] = std::string("channels_last");
    one.x = {1, op.size, op.size, op.inputs};
    one.y = {k, k, op.inputs};
    if (!depthwise) one.y.push_back(op.outputs);
  }
  one.attrs = std::move(attrs);
  HEDDLE_ASSIGN_OR_RETURN(Workload workload, WorkloadOf(one));
  workload.layout = block > 0 ? absl::StrCat("channels in blocks of ", block) : "channels last";
  return workload;
}

absl::StatusOr<std::vector<Workload>> TasksOf(const std::string& model,
                                              const WorkloadOptions& options) {
  HEDDLE_ASSIGN_OR_RETURN(const std::string onnx, zoo::MakeZooModel(model, 0));
  HEDDLE_ASSIGN_OR_RETURN(const graph::FusedGraph fused, PrepareModel(onnx, {}, options.target));
  std::vector<Workload> workloads;
  for (const graph::Task& task : graph::ExtractTasks(fused)) {
    workloads.push_back(
        {absl::StrCat(model, "/", workloads.size()), task.label, task.workload, task.flops});
  }
  return workloads;
}

}  // namespace

absl::StatusOr<std::vector<Workload>> FindWorkloads(const std::string& name,
                                                    const WorkloadOptions& options) {
  if (const std::optional<Operator> op = FindOperator(name); op.has_value()) {
    HEDDLE_ASSIGN_OR_RETURN(Workload workload, FromTable(*op, options));
    return std::vector<Workload>{std::move(workload)};
  }
  const std::vector<std::string> models = zoo::ZooNames();
  if (std::find(models.begin(), models.end(), name) != models.end()) return TasksOf(name, options);
  return absl::NotFoundError(
      absl::StrCat("no workload '", name,
                   "': it is C1..C12, D1..D9, MxNxK, BxMxNxK, MxNxKf16 or a model of the zoo"));
}

}  // namespace heddle::bench
