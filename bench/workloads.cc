#include "bench/workloads.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "compiler/compile.h"
#include "compiler/graph/ops.h"
#include "compiler/graph/zoo.h"
#include "compiler/ir/status_macros.h"

namespace heddle::bench {
namespace {

// Square images and kernels, "same" padding, batch 1. A depthwise operator has as many outputs as
// inputs.
struct Convolution {
  const char* name;
  int64_t size, inputs, outputs, kernel, stride;
  bool IsDepthwise() const { return name[0] == 'D'; }
};

constexpr Convolution kTable[] = {
    {"C1", 224, 3, 64, 7, 2},    {"C2", 56, 64, 64, 3, 1},    {"C3", 56, 64, 64, 1, 1},
    {"C4", 56, 64, 128, 3, 2},   {"C5", 56, 64, 128, 1, 2},   {"C6", 28, 128, 128, 3, 1},
    {"C7", 28, 128, 256, 3, 2},  {"C8", 28, 128, 256, 1, 2},  {"C9", 14, 256, 256, 3, 1},
    {"C10", 14, 256, 512, 3, 2}, {"C11", 14, 256, 512, 1, 2}, {"C12", 7, 512, 512, 3, 1},
    {"D1", 112, 32, 32, 3, 1},   {"D2", 112, 64, 64, 3, 2},   {"D3", 56, 128, 128, 3, 1},
    {"D4", 56, 128, 128, 3, 2},  {"D5", 28, 256, 256, 3, 1},  {"D6", 28, 256, 256, 3, 2},
    {"D7", 14, 512, 512, 3, 1},  {"D8", 14, 512, 512, 3, 2},  {"D9", 7, 1024, 1024, 3, 1},
};

// A graph of one operator on two inputs, taken through fusion like any model's.
absl::StatusOr<Workload> OneOperator(const std::string& name, const std::string& op,
                                     std::vector<int64_t> x, std::vector<int64_t> y,
                                     graph::Attrs attrs) {
  const std::vector<graph::TensorType> types = {{ir::DType::kF32, std::move(x)},
                                                {ir::DType::kF32, std::move(y)}};
  const graph::OpDef* def = graph::FindOp(op);
  if (def == nullptr) return absl::InternalError(absl::StrCat("no operator '", op, "'"));
  HEDDLE_ASSIGN_OR_RETURN(const std::vector<graph::TensorType> out, def->infer(types, attrs));
  graph::Graph graph;
  graph.values = {{"x", types[0]}, {"y", types[1]}, {"out", out[0]}};
  graph.inputs = {0, 1};
  graph.outputs = {2};
  graph.nodes = {{op, op, {0, 1}, {2}, std::move(attrs)}};
  HEDDLE_ASSIGN_OR_RETURN(const graph::FusedGraph fused, graph::Fuse(std::move(graph)));
  if (fused.groups.size() != 1) return absl::InternalError("one operator made several kernels");
  const graph::Group& group = fused.groups[0];
  return Workload{name, group.label, group.workload, group.flops};
}

absl::StatusOr<Workload> FromTable(const Convolution& c) {
  const int64_t out = (c.size + c.stride - 1) / c.stride;
  const int64_t pad = std::max<int64_t>((out - 1) * c.stride + c.kernel - c.size, 0);
  const int64_t begin = pad / 2;
  const int64_t end = pad - begin;
  const graph::Attrs attrs = {{"layout", std::string("channels_last")},
                              {"strides", std::vector<int64_t>{c.stride, c.stride}},
                              {"pads", std::vector<int64_t>{begin, begin, end, end}}};
  const std::vector<int64_t> image = {1, c.size, c.size, c.inputs};
  if (c.IsDepthwise()) {
    return OneOperator(c.name, "depthwise_conv2d", image, {c.kernel, c.kernel, c.inputs}, attrs);
  }
  return OneOperator(c.name, "conv2d", image, {c.kernel, c.kernel, c.inputs, c.outputs}, attrs);
}

absl::StatusOr<Workload> MatrixProduct(const std::string& name, const std::vector<int64_t>& sizes) {
  const bool batched = sizes.size() == 4;
  const int64_t m = sizes[batched + 0], n = sizes[batched + 1], k = sizes[batched + 2];
  if (batched) return OneOperator(name, "matmul", {sizes[0], m, k}, {sizes[0], k, n}, {});
  return OneOperator(name, "matmul", {m, k}, {k, n}, {});
}

// The extents of "MxNxK" or "BxMxNxK"; empty if `name` is neither.
std::vector<int64_t> ParseSizes(const std::string& name) {
  std::vector<int64_t> sizes;
  for (absl::string_view part : absl::StrSplit(name, 'x')) {
    int64_t size = 0;
    if (!absl::SimpleAtoi(part, &size) || size < 1 || size > 65536) return {};
    sizes.push_back(size);
  }
  return sizes.size() == 3 || sizes.size() == 4 ? sizes : std::vector<int64_t>();
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

template <typename T>
absl::StatusOr<std::vector<Workload>> Single(absl::StatusOr<T> workload) {
  if (!workload.ok()) return workload.status();
  return std::vector<Workload>{*std::move(workload)};
}

}  // namespace

std::vector<std::string> TableNames() {
  std::vector<std::string> names;
  for (const Convolution& c : kTable) names.push_back(c.name);
  return names;
}

absl::StatusOr<std::vector<Workload>> FindWorkloads(const std::string& name) {
  for (const Convolution& c : kTable) {
    if (name == c.name) return Single(FromTable(c));
  }
  if (const std::vector<int64_t> sizes = ParseSizes(name); !sizes.empty()) {
    return Single(MatrixProduct(name, sizes));
  }
  const std::vector<std::string> models = graph::ZooNames();
  if (std::find(models.begin(), models.end(), name) != models.end()) return TasksOf(name);
  return absl::NotFoundError(absl::StrCat(
      "no workload '", name, "': it is C1..C12, D1..D9, MxNxK, BxMxNxK or a model of the zoo"));
}

}  // namespace heddle::bench
