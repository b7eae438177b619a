#include "compiler/driver/model_layout.h"

#include <algorithm>

#include "base/status_macros.h"
#include "compiler/codegen/backend.h"
#include "compiler/driver/import_model.h"
#include "compiler/substitution/apply_rules.h"

namespace heddle {
namespace {

absl::StatusOr<machine::TargetInfo> Describe(const Target& target,
                                             const machine::MeasuredMachine* machine = nullptr) {
  HEDDLE_ASSIGN_OR_RETURN(const Target resolved, codegen::ResolveTarget(target));
  return codegen::DescribeTarget(resolved, machine);
}

int64_t BlockOf(const machine::TargetInfo& info) {
  if (info.execution == machine::Execution::kGrid) return 0;
  return std::max<int64_t>(info.line_bytes / 2, info.vector_bytes) / ir::SizeOf(ir::DType::kF32);
}

}  // namespace

absl::StatusOr<int64_t> BlockFor(const Target& target) {
  HEDDLE_ASSIGN_OR_RETURN(const machine::TargetInfo info, Describe(target));
  return BlockOf(info);
}

absl::StatusOr<ModelOptions> ForTarget(ModelOptions options, const Target& target) {
  HEDDLE_ASSIGN_OR_RETURN(options.passes.target,
                          Describe(target, options.machine ? &*options.machine : nullptr));
  std::optional<int64_t>& block = options.passes.layout.block;
  if (!block.has_value()) block = BlockOf(options.passes.target);
  if (!options.passes.rules) options.passes.rules = substitution::ApplyRules;
  return options;
}

absl::StatusOr<graph::LayoutPlan> ExplainLayouts(std::string_view onnx, const ModelOptions& options,
                                                 const Target& target) {
  graph::LayoutPlan plan;
  HEDDLE_ASSIGN_OR_RETURN(ModelOptions explained, ForTarget(options, target));
  explained.passes.layout.plan = &plan;
  HEDDLE_ASSIGN_OR_RETURN(const graph::Graph imported, ImportModel(onnx, options.import));
  HEDDLE_RETURN_IF_ERROR(graph::Optimize(imported, explained.passes).status());
  return plan;
}

}  // namespace heddle
