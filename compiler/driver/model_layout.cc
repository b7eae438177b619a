#include "compiler/driver/model_layout.h"

#include <algorithm>

#include "base/status_macros.h"
#include "compiler/codegen/backend.h"
#include "compiler/graph/core/operator.h"

namespace heddle {
namespace {

struct Timed {
  std::string key;  // key of the kernel
  double ns = 0;
};

// The kernels that have a record, by the name of their anchor node. Passes keep the names of
// anchors.
absl::StatusOr<std::map<std::string, Timed>> ByAnchor(
    std::string_view onnx, ModelOptions options, const Target& target, graph::Layout layout,
    const std::map<std::string, BestRecord>& best) {
  options.passes.layout.all = layout;
  HEDDLE_ASSIGN_OR_RETURN(const graph::FusedGraph fused, PrepareModel(onnx, options, target));
  std::map<std::string, Timed> timed;
  for (const graph::Group& group : fused.groups) {
    const auto record = best.find(group.key);
    if (record == best.end()) continue;
    for (int n : group.nodes) {
      const graph::Node& node = fused.graph.nodes[static_cast<size_t>(n)];
      if (graph::Def(node.kind).fusion == graph::FusionClass::kInjective) continue;
      timed[node.name] = {group.key, record->second.median_ns};
    }
  }
  return timed;
}

absl::StatusOr<machine::TargetInfo> Describe(const Target& target) {
  HEDDLE_ASSIGN_OR_RETURN(const Target resolved, codegen::ResolveTarget(target));
  return codegen::DescribeTarget(resolved);
}

int64_t BlockFor(const machine::TargetInfo& info) {
  if (info.execution == machine::Execution::kGrid) return 0;
  return std::max<int64_t>(info.line_bytes / 2, info.vector_bytes) / ir::SizeOf(ir::DType::kF32);
}

}  // namespace

absl::StatusOr<int64_t> BlockFor(const Target& target) {
  HEDDLE_ASSIGN_OR_RETURN(const machine::TargetInfo info, Describe(target));
  return BlockFor(info);
}

absl::StatusOr<ModelOptions> ForTarget(ModelOptions options, const Target& target) {
  HEDDLE_ASSIGN_OR_RETURN(options.passes.target, Describe(target));
  std::optional<int64_t>& block = options.passes.layout.block;
  if (!block.has_value()) block = BlockFor(options.passes.target);
  return options;
}

absl::StatusOr<graph::MeasuredLayoutCosts> LayoutCostsFromRecords(
    std::string_view onnx, const ModelOptions& options, const Target& target,
    const std::map<std::string, BestRecord>& best) {
  std::map<std::string, graph::LayoutProblem::Operator> ns_by_node;
  HEDDLE_ASSIGN_OR_RETURN(const machine::TargetInfo info, Describe(target));
  if (best.empty()) return graph::MeasuredLayoutCosts(ns_by_node, info);
  constexpr int64_t kNever = graph::LayoutProblem::kNever;
  std::map<std::string, Timed> last;
  for (const graph::Layout layout : graph::kLayouts) {
    HEDDLE_ASSIGN_OR_RETURN(const auto timed, ByAnchor(onnx, options, target, layout, best));
    for (const auto& [node, kernel] : timed) {
      graph::LayoutProblem::Operator& op =
          ns_by_node.try_emplace(node, graph::LayoutProblem::Operator{kNever, kNever, kNever})
              .first->second;
      const auto ns = static_cast<int64_t>(kernel.ns);
      switch (layout) {
        case graph::Layout::kChannelsFirst:
          op.first_ns = ns;
          break;
        case graph::Layout::kChannelsLast:
          op.last_ns = ns;
          last[node] = kernel;
          break;
        // Nodes without a blocked form have channels last here.
        case graph::Layout::kChannelsBlocked:
          if (!last.contains(node) || last.at(node).key != kernel.key) op.blocked_ns = ns;
          break;
      }
    }
  }
  return graph::MeasuredLayoutCosts(std::move(ns_by_node), info);
}

absl::StatusOr<graph::LayoutPlan> ExplainLayouts(std::string_view onnx, const ModelOptions& options,
                                                 const Target& target) {
  graph::LayoutPlan plan;
  HEDDLE_ASSIGN_OR_RETURN(ModelOptions explained, ForTarget(options, target));
  explained.passes.layout.plan = &plan;
  HEDDLE_ASSIGN_OR_RETURN(const graph::Graph imported, graph::ImportOnnx(onnx, options.import));
  HEDDLE_RETURN_IF_ERROR(graph::Optimize(imported, explained.passes).status());
  return plan;
}

}  // namespace heddle
