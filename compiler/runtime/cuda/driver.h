// The CUDA driver of this host, if it has one.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "compiler/runtime/cuda/api.h"

namespace heddle::runtime {

// Names another library than libcuda.so.1, for tests.
inline constexpr char kCudaDriverVariable[] = "HEDDLE_CUDA_DRIVER";

// Loaded and initialised at the first call; every later call, of any thread, gives the same answer.
// FailedPrecondition in one line: there is none, it lacks a function, or it does not start.
absl::StatusOr<const CudaApi*> CudaDriver();

// "13.0": the newest CUDA the driver knows. Empty where there is no driver.
std::string CudaDriverVersion();

// The status of `result`, `what` being the thing done, as "allocate 12 bytes":
//   Aborted            sticky: the process's use of the GPU is over (illegal address, launch
//                      timeout, memory error, ..); only a new process helps
//   ResourceExhausted  no memory on the device
//   InvalidArgument    the code is not for this GPU, or wants more than it has
//   FailedPrecondition no such device, the driver is no real one
//   Internal           everything else
absl::Status CudaStatus(const CudaApi& api, CuResult result, const std::string& what);

}  // namespace heddle::runtime
