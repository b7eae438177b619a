// The layouts of a model: completes the options of PrepareModel for a target, and says what was chosen.
#pragma once

#include "compiler/driver/compile.h"
#include "compiler/graph/layout/layout_plan.h"

namespace heddle {

// The number of channels in a block of the blocked layout: as many f32 as a vector holds, but at
// least half a cache line. 0 on GPUs, which have no such layout. InvalidArgument: as ResolveTarget.
absl::StatusOr<int64_t> BlockFor(const Target& target);

// `options` with the missing parts set for the target: the description of it and of options.machine,
// the number of channels in a block, and the rules that every graph is simplified by. Errors as BlockFor.
absl::StatusOr<ModelOptions> ForTarget(ModelOptions options, const Target& target);

// The layouts that PrepareModel chooses for this model, and why.
absl::StatusOr<graph::LayoutPlan> ExplainLayouts(std::string_view onnx, const ModelOptions& options,
                                                 const Target& target);

}  // namespace heddle
