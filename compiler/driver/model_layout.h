// The layouts of a model: what PrepareModel leaves open and chooses, and costs from records.
#pragma once

#include "compiler/driver/compile.h"
#include "compiler/graph/layout/layout_plan.h"

namespace heddle {

// Channels in a block of the blocked layout for a target: as many as a vector has f32 lanes, but at
// least half a line of memory; 0, none, on GPUs. InvalidArgument: what ResolveTarget says.
absl::StatusOr<int64_t> BlockFor(const Target& target);

// `options` with what they leave open chosen for the target: the channels in a block, the threads,
// and whether convolutions may take Winograd's form. Errors as BlockFor.
absl::StatusOr<ModelOptions> ForTarget(ModelOptions options, const Target& target);

// What the estimates of layouts know of kernels for a target.
graph::KernelOptions KernelsFor(const Target& target);

// The model fused with every operator channels first; last; and blocked; where it can be: an
// operator's time in a layout is that of the kernel it anchors, where `best` has it
// (MeasuredLayoutCosts); all others are estimated.
// Errors: of the import.
absl::StatusOr<graph::MeasuredLayoutCosts> LayoutCostsFromRecords(
    std::string_view onnx, const ModelOptions& options, const Target& target,
    const std::map<std::string, BestRecord>& best);

// The layouts that PrepareModel chooses for this model, and why.
absl::StatusOr<graph::LayoutPlan> ExplainLayouts(std::string_view onnx, const ModelOptions& options,
                                                 const Target& target);

}  // namespace heddle
