#include "compiler/compile_layout.h"

#include "compiler/graph/ops.h"
#include "compiler/ir/status_macros.h"

namespace heddle {
namespace {

// Time of each kernel with a record, by the node it is there for. Passes keep names of nodes.
absl::StatusOr<std::map<std::string, double>> NsByAnchor(
    std::string_view onnx, ModelOptions options, graph::Layout layout,
    const std::map<std::string, BestRecord>& best) {
  options.passes.layout.all = layout;
  HEDDLE_ASSIGN_OR_RETURN(const graph::FusedGraph fused, PrepareModel(onnx, options));
  std::map<std::string, double> ns;
  for (const graph::Group& group : fused.groups) {
    const auto record = best.find(group.key);
    if (record == best.end()) continue;
    for (int n : group.nodes) {
      const graph::Node& node = fused.graph.nodes[static_cast<size_t>(n)];
      if (graph::FindOp(node.op)->fusion == graph::FusionClass::kInjective) continue;
      ns[node.name] = record->second.median_ns;
    }
  }
  return ns;
}

}  // namespace

absl::StatusOr<graph::MeasuredLayoutCosts> LayoutCostsFromRecords(
    std::string_view onnx, const ModelOptions& options,
    const std::map<std::string, BestRecord>& best) {
  std::map<std::string, graph::LayoutProblem::Operator> both;
  if (best.empty()) return graph::MeasuredLayoutCosts(both);
  using graph::Layout;
  HEDDLE_ASSIGN_OR_RETURN(const auto first,
                          NsByAnchor(onnx, options, Layout::kChannelsFirst, best));
  HEDDLE_ASSIGN_OR_RETURN(const auto last, NsByAnchor(onnx, options, Layout::kChannelsLast, best));
  for (const auto& [node, ns] : first) {
    const auto other = last.find(node);
    if (other == last.end()) continue;
    both[node] = {static_cast<int64_t>(ns), static_cast<int64_t>(other->second)};
  }
  return graph::MeasuredLayoutCosts(std::move(both));
}

absl::StatusOr<graph::LayoutPlan> ExplainLayouts(std::string_view onnx,
                                                 const ModelOptions& options) {
  graph::LayoutPlan plan;
  ModelOptions explained = options;
  explained.passes.layout.plan = &plan;
  HEDDLE_ASSIGN_OR_RETURN(const graph::Graph imported, graph::ImportOnnx(onnx, options.import));
  HEDDLE_RETURN_IF_ERROR(graph::Optimize(imported, explained.passes).status());
  return plan;
}

}  // namespace heddle
