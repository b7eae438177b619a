// Constants in the form that kernels want them. Internal to this folder.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "compiler/driver/schedule_and_lower.h"
#include "compiler/graph/fusion/fuse.h"

namespace heddle::internal {

// kernel_of[i] is the kernel of group i. Groups whose kernel has a prepack program get the inputs
// that kernel takes: constants it no longer reads go, prepacked ones are computed and become
// constants of the graph. The programs run in this process, whatever the target: as machine code of
// this machine, or interpreted if they are lowered for a grid, whose loops no CPU code has.
// Internal if one of them reads what is no constant.
absl::Status PrepackConstants(const std::vector<const LoweredWorkload*>& kernel_of,
                              const machine::TargetInfo& target, graph::FusedGraph* fused);

}  // namespace heddle::internal
