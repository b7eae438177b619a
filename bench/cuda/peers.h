// The peers on a GPU: cuBLAS and cuDNN, loaded if they are found. Nothing of them is linked. Both
// work in the device's stream, on memory that they do not check.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "bench/common/operator_table.h"
#include "compiler/runtime/cuda/device.h"

namespace heddle::bench {

// Launches one call of the peer without waiting for it.
struct PeerCall {
  std::string name;  // "cuBLAS 13.0", "cuDNN 9.1 algorithm 6"
  std::function<absl::Status()> call;
  std::shared_ptr<void> keeps;  // keeps handles and memory of the call alive
};

// A product y = x * w in single precision (without tensor cores, which round differently) or of f16
// with sums in f32 on tensor cores; or a convolution, with channels last or first, whichever is
// faster. NotFound if the library is missing.
absl::StatusOr<PeerCall> OpenCublas(runtime::CudaDevice& device, const Operator& op);
absl::StatusOr<PeerCall> OpenCudnn(runtime::CudaDevice& device, const Operator& op);

}  // namespace heddle::bench
