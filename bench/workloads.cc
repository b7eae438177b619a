#include "bench/workloads.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "bench/operator_table.h"
#include "compiler/compile.h"
#include "compiler/graph/ops.h"
#include "compiler/graph/zoo.h"
#include "compiler/ir/status_macros.h"

namespace heddle::bench {
namespace {

// A graph of one operator on two operands, taken through fusion like any model's. The second one is
// a constant unless both are activations.
absl::StatusOr<Workload> OneOperator(const std::string& name, const std::string& op,
                                     std::vector<int64_t> x, std::vector<int64_t> y,
                                     graph::Attrs attrs, bool constant = true,
                                     ir::DType dtype = ir::DType::kF32) {
  const std::vector<graph::TensorType> types = {{dtype, std::move(x)}, {dtype, std::move(y)}};
  const graph::OpDef* def = graph::FindOp(op);
  if (def == nullptr) return absl::InternalError(absl::StrCat("no operator '", op, "'"));
  HEDDLE_ASSIGN_OR_RETURN(const std::vector<graph::TensorType> out, def->infer(types, attrs));
  graph::Graph graph;
  graph.values = {{"x", types[0]}, {"y", types[1]}, {"out", out[0]}};
  graph.inputs = {0};
  if (constant) {
    graph.constants[1] = {types[1], nullptr};  // nobody asks for its elements
  } else {
    graph.inputs.push_back(1);
  }
  graph.outputs = {2};
  graph.nodes = {{op, op, {0, 1}, {2}, std::move(attrs)}};
  HEDDLE_ASSIGN_OR_RETURN(const graph::FusedGraph fused, graph::Fuse(std::move(graph)));
  if (fused.groups.size() != 1) return absl::InternalError("one operator made several kernels");
  const graph::Group& group = fused.groups[0];
  return Workload{name, group.label, group.workload, group.flops};
}

absl::StatusOr<Workload> FromTable(const Operator& op) {
  if (op.kind == OperatorKind::kMatrixProduct) {
    const ir::DType dtype = op.half ? ir::DType::kF16 : ir::DType::kF32;
    if (op.batch == 0)
      return OneOperator(op.name, "matmul", {op.m, op.k}, {op.k, op.n}, {}, true, dtype);
    return OneOperator(op.name, "matmul", {op.batch, op.m, op.k}, {op.batch, op.k, op.n}, {},
                       /*constant=*/false);
  }
  const int64_t begin = op.PadBegin(), end = op.PadEnd();
  const graph::Attrs attrs = {{"layout", std::string("channels_last")},
                              {"strides", std::vector<int64_t>{op.stride, op.stride}},
                              {"pads", std::vector<int64_t>{begin, begin, end, end}}};
  const std::vector<int64_t> image = {1, op.size, op.size, op.inputs};
  if (op.kind == OperatorKind::kDepthwise) {
    return OneOperator(op.name, "depthwise_conv2d", image, {op.kernel, op.kernel, op.inputs},
                       attrs);
  }
  return OneOperator(op.name, "conv2d", image, {op.kernel, op.kernel, op.inputs, op.outputs},
                     attrs);
}

absl::StatusOr<std::vector<Workload>> TasksOf(const std::string& model) {
  HEDDLE_ASSIGN_OR_RETURN(const std::string onnx, graph::MakeZooModel(model, 0));
  HEDDLE_ASSIGN_OR_RETURN(const graph::FusedGraph fused, PrepareModel(onnx, {}));
  std::vector<Workload> workloads;
  for (const graph::Task& task : graph::ExtractTasks(fused)) {
    workloads.push_back(
        {absl::StrCat(model, "/", workloads.size()), task.label, task.workload, task.flops});
  }
  return workloads;
}

}  // namespace

absl::StatusOr<std::vector<Workload>> FindWorkloads(const std::string& name) {
  if (const std::optional<Operator> op = FindOperator(name); op.has_value()) {
    HEDDLE_ASSIGN_OR_RETURN(Workload workload, FromTable(*op));
    return std::vector<Workload>{std::move(workload)};
  }
  const std::vector<std::string> models = graph::ZooNames();
  if (std::find(models.begin(), models.end(), name) != models.end()) return TasksOf(name);
  return absl::NotFoundError(
      absl::StrCat("no workload '", name,
                   "': it is C1..C12, D1..D9, MxNxK, BxMxNxK, MxNxKf16 or a model of the zoo"));
}

}  // namespace heddle::bench
