// Runs the CUDA C++ that the back end writes, on this CPU (host_code.h): what a GPU would compute,
// without one.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/ir/ir.h"
#include "compiler/runtime/gpu_launch.h"
#include "tests/codegen/kernel_runner.h"

namespace heddle::testing {

class CudaOnHost {
 public:
  // Lowered GPU programs with different names. Unavailable where there is no C++ compiler any more.
  static absl::StatusOr<std::unique_ptr<CudaOnHost>> Compile(
      const std::vector<ir::Program>& lowered, const std::string& arch = "sm_90");
  ~CudaOnHost();

  // Program k. Internal if it accesses memory that is not aligned as PTX asks.
  absl::Status Run(size_t k, const std::vector<HostTensor>& inputs,
                   std::vector<HostTensor>& outputs) const;

 private:
  struct Kernel {
    std::vector<runtime::GpuLaunch> launches;
    int64_t workspace_bytes = 0;
  };
  std::vector<Kernel> kernels_;
  void* library_ = nullptr;
};

}  // namespace heddle::testing
