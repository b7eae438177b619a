// A compiled kernel with its device memory.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/runtime/cuda/device.h"
#include "compiler/runtime/gpu_launch.h"

namespace heddle::runtime {

// InvalidArgument names the first launch that has no symbol, has no threads or blocks or more than
// any GPU allows, or has a buffer or workspace offset out of range.
absl::Status CheckLaunches(const std::vector<GpuLaunch>& launches, size_t buffers,
                           int64_t workspace_bytes);

class CudaKernel {
 public:
  CudaKernel() = default;
  // `buffers` are the kernel's inputs, then outputs. `module` and all memory must outlive the
  // result. Errors as CheckLaunches, and CudaModule's.
  static absl::StatusOr<CudaKernel> Bind(const CudaModule& module,
                                         const std::vector<GpuLaunch>& launches,
                                         const std::vector<CuPointer>& buffers, CuPointer workspace,
                                         int64_t workspace_bytes);

  // Enqueues all launches in order. Allocates nothing.
  absl::Status Launch(CudaDevice& device) const;

 private:
  struct Values;  // the values that the driver gets pointers to
  std::shared_ptr<const Values> values_;
  std::vector<CudaLaunch> launches_;
};

}  // namespace heddle::runtime
