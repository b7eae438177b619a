#include "bench/common/workloads.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "bench/operators/operator_table.h"
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
  bool constant = true;  // the second operand: not another activation
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
    graph.constants[1] = {types[1], nullptr};  // nobody asks for its elements
  } else {
    graph.inputs.push_back(1);
  }
  graph.outputs = {2};
  graph.nodes = {{one.kind, graph::NameOf(one.kind), {0, 1}, {2}, one.attrs}};
  return graph;
}

// Taken through fusion like any model's.
absl::StatusOr<Workload> WorkloadOf(const OneOperator& one) {
  HEDDLE_ASSIGN_OR_RETURN(graph::Graph graph, GraphOf(one));
  HEDDLE_ASSIGN_OR_RETURN(const graph::FusedGraph fused, graph::Fuse(std::move(graph)));
  if (fused.groups.size() != 1) return absl::InternalError("one operator made several kernels");
  const graph::Group& group = fused.groups[0];
  return Workload{one.name, group.label, group.workload, group.flops};
}

// Channels in a block where that is the cheapest layout of the convolution on its own, else 0.
absl::StatusOr<int64_t> CheapestBlock(const Operator& op, const graph::Attrs& window,
                                      const WorkloadOptions& options) {
  if (!options.free_layout) return 0;
  const bool depthwise = op.kind == OperatorKind::kDepthwise;
  OneOperator first{op.name, graph::OpKind::kConv2d, {1, op.inputs, op.size, op.size}, {}, window};
  first.y = {depthwise ? op.inputs : op.outputs, depthwise ? 1 : op.inputs, op.kernel, op.kernel};
  if (depthwise) first.attrs["groups"] = op.inputs;
  HEDDLE_ASSIGN_OR_RETURN(const graph::Graph graph, GraphOf(first));
  HEDDLE_ASSIGN_OR_RETURN(const int64_t block, BlockFor(options.target));
  const graph::Node& node = graph.nodes[0];
  const graph::LayoutProblem::Operator ns =
      graph::LayoutCosts(KernelsFor(options.target)).OperatorCost(graph, node).ns;
  const bool blocks =
      graph::Blocks(graph.values[0].type, block) && graph::Blocks(graph.values[2].type, block);
  return blocks && ns.blocked_ns < ns.last_ns ? block : 0;
}

absl::StatusOr<Workload> FromTable(const Operator& op, const WorkloadOptions& options) {
  if (op.kind == OperatorKind::kMatrixProduct) {
    const ir::DType dtype = op.half ? ir::DType::kF16 : ir::DType::kF32;
    if (op.batch == 0)
      return WorkloadOf(
          {op.name, graph::OpKind::kMatmul, {op.m, op.k}, {op.k, op.n}, {}, true, dtype});
    return WorkloadOf({op.name,
                       graph::OpKind::kMatmul,
                       {op.batch, op.m, op.k},
                       {op.batch, op.k, op.n},
                       {},
                       false});
  }
  const int64_t begin = op.PadBegin(), end = op.PadEnd(), k = op.kernel;
  graph::Attrs attrs = {{"strides", std::vector<int64_t>{op.stride, op.stride}},
                        {"pads", std::vector<int64_t>{begin, begin, end, end}}};
  HEDDLE_ASSIGN_OR_RETURN(const int64_t b, CheapestBlock(op, attrs, options));
  const bool depthwise = op.kind == OperatorKind::kDepthwise;
  OneOperator one{op.name, depthwise ? graph::OpKind::kDepthwiseConv2d : graph::OpKind::kConv2d};
  if (b == 0) {
    attrs["layout"] = std::string("channels_last");
    one.x = {1, op.size, op.size, op.inputs};
    one.y = {k, k, op.inputs};
    if (!depthwise) one.y.push_back(op.outputs);
  } else {
    one.kind = depthwise ? graph::OpKind::kBlockedDepthwiseConv2d : graph::OpKind::kBlockedConv2d;
    one.x = {1, op.inputs / b, op.size, op.size, b};
    one.y = depthwise ? std::vector<int64_t>{op.inputs / b, k, k, b}
                      : std::vector<int64_t>{op.outputs / b, op.inputs / b, k, k, b, b};
  }
  one.attrs = std::move(attrs);
  HEDDLE_ASSIGN_OR_RETURN(Workload workload, WorkloadOf(one));
  workload.layout = b == 0 ? "channels last" : absl::StrCat("channels in blocks of ", b);
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
