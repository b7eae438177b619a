// What a GPU's owner would use instead: cuBLAS and cuDNN, loaded where they are found. Nothing of
// them is linked. Both work in the device's stream, on memory they do not check.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "bench/common/operator_table.h"
#include "compiler/runtime/cuda/device.h"

namespace heddle::bench {

// Gives the device one call of the peer's and does not wait.
struct PeerCall {
  std::string name;  // "cuBLAS 13.0", "cuDNN 9.1 algorithm 6"
  std::function<absl::Status()> call;
  std::shared_ptr<void> keeps;  // handles and memory the call needs
};

// y = x * w in single precision (no tensor cores: their rounding is another), or of f16 with sums
// in f32 on tensor cores; or the convolution op, channels last or first, whichever the library is
// faster with. NotFound in one line where the library is not there.
absl::StatusOr<PeerCall> OpenCublas(runtime::CudaDevice& device, const Operator& op);
absl::StatusOr<PeerCall> OpenCudnn(runtime::CudaDevice& device, const Operator& op);

}  // namespace heddle::bench
