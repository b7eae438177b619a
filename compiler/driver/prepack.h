// Brings constants into the form that kernels read. Internal to this folder.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "compiler/driver/schedule_and_lower.h"
#include "compiler/graph/fusion/fuse.h"

namespace heddle::internal {

// kernel_of[i] is the kernel of group i. If a group's kernel has a prepack program, the group gets
// the inputs that the kernel takes: constants that it no longer reads are removed, and prepacked
// ones are computed and become constants of the graph. The programs run in this process, whatever
// the target is: as machine code of this machine, or interpreted if they are lowered for a grid,
// because no CPU code exists for grid loops. Internal: a program reads an input that is not a
// constant.
absl::Status PrepackConstants(const std::vector<const LoweredWorkload*>& kernel_of,
                              const machine::TargetInfo& target, graph::FusedGraph* fused);

}  // namespace heddle::internal
