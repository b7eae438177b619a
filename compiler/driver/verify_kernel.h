// Whether a module's kernels compute what their workloads say. Internal to this folder.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "compiler/codegen/backend.h"
#include "compiler/codegen/tolerance.h"
#include "compiler/graph/core/graph.h"
#include "compiler/runtime/abi.h"
#include "compiler/runtime/kernel_library.h"

namespace heddle::internal {

// One kernel and the values one of its calls works on.
struct KernelUse {
  std::string workload;
  std::vector<graph::ValueId> given;  // the inputs p0, p1, .. of the workload
  std::vector<graph::ValueId>
      taken;  // the inputs the kernel takes: `given`, some of them prepacked
  codegen::Tolerance tolerance;
};

// Runs the kernel once on the constants that the graph holds, prepacked ones included, and random
// values for all else, and compares a few elements of each output, corners and random ones, with
// the workload's definition. Records are trusted as far as their schedule goes, and no further:
// they may come from another machine or an older compiler. DataLoss "wrong result: ..".
absl::Status VerifyKernel(const KernelUse& use, const graph::Graph& graph,
                          const codegen::KernelInfo& info, const runtime::KernelLibrary& library,
                          const heddle_host* host);

}  // namespace heddle::internal
