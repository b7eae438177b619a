// Layouts of a model as its users see them: costs from records, and what was chosen.
#pragma once

#include "compiler/driver/compile.h"
#include "compiler/graph/layout/layout_plan.h"

namespace heddle {

// Channels in a block of the blocked layout for a target: as many as a vector has f32 lanes, but at
// least half a line of memory; 0, none, on GPUs. InvalidArgument: what ResolveTarget says.
absl::StatusOr<int64_t> BlockFor(const Target& target);

// `options` with what they leave open chosen for the target: what is known of its machine, and the
// channels in a block. Errors as BlockFor.
absl::StatusOr<ModelOptions> ForTarget(ModelOptions options, const Target& target);

// The model fused with every operator channels first; last; and blocked; where it can be: an
// operator's time in a layout is that of the kernel it anchors, where `best` has it
// (MeasuredLayoutCosts); all others are estimated.
// Errors: of the import.
absl::StatusOr<graph::MeasuredLayoutCosts> LayoutCostsFromRecords(
    std::string_view onnx, const ModelOptions& options, const Target& target,
    const std::map<std::string, BestRecord>& best);

// What PrepareModel chooses for this model.
absl::StatusOr<graph::LayoutPlan> ExplainLayouts(std::string_view onnx, const ModelOptions& options,
                                                 const Target& target);

}  // namespace heddle
