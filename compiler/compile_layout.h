// Layouts of a model as its users see them: costs from records, and what was chosen.
#pragma once

#include "compiler/compile.h"
#include "compiler/graph/layout_plan.h"

namespace heddle {

// The model with every operator channels first, and last where it can be, fused: an operator's time
// is that of the kernel it anchors, where `best` has it in both forms; all others are estimated.
// Errors: of the import.
absl::StatusOr<graph::MeasuredLayoutCosts> LayoutCostsFromRecords(
    std::string_view onnx, const ModelOptions& options,
    const std::map<std::string, BestRecord>& best);

// What PrepareModel chooses for this model.
absl::StatusOr<graph::LayoutPlan> ExplainLayouts(std::string_view onnx,
                                                 const ModelOptions& options);

}  // namespace heddle
