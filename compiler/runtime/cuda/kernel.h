// A compiled kernel with the device memory it works on.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/runtime/cuda/device.h"
#include "compiler/runtime/gpu_launch.h"

namespace heddle::runtime {

// InvalidArgument naming the first launch that has no symbol, starts no or too many threads or
// blocks for any GPU, or takes a buffer or a place of the workspace that there is not.
absl::Status CheckLaunches(const std::vector<GpuLaunch>& launches, size_t buffers,
                           int64_t workspace_bytes);

class CudaKernel {
 public:
  CudaKernel() = default;
  // `buffers`: the kernel's inputs, then outputs. `module` and all memory have to outlive it.
  // Errors as CheckLaunches and CudaModule::Find.
  static absl::StatusOr<CudaKernel> Bind(const CudaModule& module,
                                         const std::vector<GpuLaunch>& launches,
                                         const std::vector<CuPointer>& buffers, CuPointer workspace,
                                         int64_t workspace_bytes);

  // Gives the device all launches, in order. Allocates nothing.
  absl::Status Launch(CudaDevice& device) const;

 private:
  struct Values;  // what the driver is handed pointers to
  std::shared_ptr<const Values> values_;
  std::vector<CudaLaunch> launches_;
};

}  // namespace heddle::runtime
