// The layouts of a model: completes the options of PrepareModel for a target, and derives costs
// from records.
#pragma once

#include "compiler/driver/compile.h"
#include "compiler/graph/layout/layout_plan.h"

namespace heddle {

// The number of channels in a block of the blocked layout: as many f32 as a vector holds, but at
// least half a cache line. 0 on GPUs, which have no such layout. InvalidArgument: as ResolveTarget.
absl::StatusOr<int64_t> BlockFor(const Target& target);

// `options` with the missing parts set for the target: the description of its machine, and the
// number of channels in a block. Errors as BlockFor.
absl::StatusOr<ModelOptions> ForTarget(ModelOptions options, const Target& target);

// Costs of layouts from measured times. The model is fused three times: with all operators channels
// first, last, and blocked, as far as they have that form. The time of an operator in a layout is
// that of the kernel it anchors if `best` has it; all other times are estimated
// (MeasuredLayoutCosts). InvalidArgument: the model is bad, or as ResolveTarget.
absl::StatusOr<graph::MeasuredLayoutCosts> LayoutCostsFromRecords(
    std::string_view onnx, const ModelOptions& options, const Target& target,
    const std::map<std::string, BestRecord>& best);

// The layouts that PrepareModel chooses for this model, and why.
absl::StatusOr<graph::LayoutPlan> ExplainLayouts(std::string_view onnx, const ModelOptions& options,
                                                 const Target& target);

}  // namespace heddle
