// Writes lowered programs as CUDA C++. Private to this folder.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/codegen/cuda/gpu_arch.h"
#include "compiler/ir/ir.h"
#include "compiler/runtime/gpu_launch.h"

namespace heddle::codegen {

struct CudaKernel {
  std::string source;  // of all launches; needs prelude.h before it
  std::vector<runtime::GpuLaunch> launches;
  std::vector<GpuDemand> demands;  // of each launch
  int64_t workspace_bytes = 0;
};

// The launches of a program (cuda_backend.h). Each is a function named `symbol` and a number. `groups`: four warps may
// multiply together (machine/group_products.h); without, what has that shape is made by single warps.
// Unimplemented: a launch inside a loop or condition, or a local buffer that cannot be spread over
// the threads (locals.h).
absl::StatusOr<CudaKernel> EmitCuda(const ir::Program& lowered, const std::string& symbol,
                                    bool groups);

}  // namespace heddle::codegen
