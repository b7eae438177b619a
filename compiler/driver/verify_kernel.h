// Checks whether the kernels of a module compute what their workloads say. Internal to this folder.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/codegen/backend.h"
#include "compiler/driver/kernel_table.h"
#include "compiler/graph/core/graph.h"

namespace heddle::internal {

// One call of a kernel, by the values that it works on.
struct ValueCall {
  int kernel = 0;
  std::vector<graph::ValueId> given;  // the inputs p0, p1, .. of the workload
  // The inputs of the kernel: like `given`, with prepacked constants.
  std::vector<graph::ValueId> taken;
};

struct WrongKernel {
  int kernel = 0;
  std::string message;  // "wrong result: .."
};

// Runs every kernel with a tuned schedule once in this process, on `threads` threads. It runs the
// kernel's first call, on the constants of the graph, including prepacked ones, and on random
// values for all other inputs. A few elements of each output, corners and random ones, are compared
// with the workload's definition. A record is not trusted beyond its schedule, because it may come
// from another machine or an older compiler. An error means that the check was not possible.
absl::StatusOr<std::vector<WrongKernel>> FindWrongKernels(const codegen::Artifact& artifact,
                                                          const KernelTable& kernels,
                                                          const std::vector<ValueCall>& calls,
                                                          const graph::Graph& graph, int threads);

}  // namespace heddle::internal
