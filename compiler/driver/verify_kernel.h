// Whether a module's kernels compute what their workloads say. Internal to this folder.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/codegen/backend.h"
#include "compiler/driver/kernel_table.h"
#include "compiler/graph/core/graph.h"

namespace heddle::internal {

// One call of a kernel, by the values it works on.
struct ValueCall {
  int kernel = 0;
  std::vector<graph::ValueId> given;  // the inputs p0, p1, .. of the workload
  std::vector<graph::ValueId> taken;  // the inputs of the kernel: `given`, some of them prepacked
};

struct WrongKernel {
  int kernel = 0;
  std::string message;  // "wrong result: .."
};

// Runs every kernel with a tuned schedule once in this process, on `threads` threads: at its first
// call, on the constants that the graph holds, prepacked ones included, and random values for all
// else. Compares a few elements of each output, corners and random ones, with the workload's
// definition. A record is trusted no further than its schedule: it may come from another machine or
// an older compiler. Errors mean that the check was not possible.
absl::StatusOr<std::vector<WrongKernel>> FindWrongKernels(const codegen::Artifact& artifact,
                                                          const KernelTable& kernels,
                                                          const std::vector<ValueCall>& calls,
                                                          const graph::Graph& graph, int threads);

}  // namespace heddle::internal
