// The layouts of a model: what they cost by records, and which ones are chosen.
#pragma once

#include "compiler/driver/compile.h"
#include "compiler/graph/layout/layout_plan.h"

namespace heddle {

// Channels in a block of the blocked layout for a target: as many f32 as a vector holds, but at
// least half a cache line; 0 on GPUs, which have no such layout. InvalidArgument: as
// ResolveTarget.
absl::StatusOr<int64_t> BlockFor(const Target& target);

// `options` with what they leave open chosen for the target: what is known of its machine, and the
// channels in a block. Errors as BlockFor.
absl::StatusOr<ModelOptions> ForTarget(ModelOptions options, const Target& target);

// The model is fused three times: with every operator channels first, last, and blocked, where it
// has that form. An operator's time in a layout is that of the kernel it anchors if `best` has it;
// all other times are estimated (MeasuredLayoutCosts). InvalidArgument: the model, or as
// ResolveTarget.
absl::StatusOr<graph::MeasuredLayoutCosts> LayoutCostsFromRecords(
    std::string_view onnx, const ModelOptions& options, const Target& target,
    const std::map<std::string, BestRecord>& best);

// The layouts that PrepareModel chooses for this model.
absl::StatusOr<graph::LayoutPlan> ExplainLayouts(std::string_view onnx, const ModelOptions& options,
                                                 const Target& target);

}  // namespace heddle
