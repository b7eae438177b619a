// The CUDA driver of this host, if it has one.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "compiler/runtime/cuda/api.h"

namespace heddle::runtime {

// The environment variable that names another library than libcuda.so.1, for tests.
inline constexpr char kCudaDriverVariable[] = "HEDDLE_CUDA_DRIVER";

// Whether this host has a driver. This function loads the driver, which takes milliseconds, and does not
// start it.
bool HasCudaDriver();

// Loads and initialises the driver in the first call. Later calls, from any thread, return the same
// result. FailedPrecondition: there is no driver, it lacks a function, or it does not start.
absl::StatusOr<const CudaApi*> CudaDriver();

// The newest CUDA that the driver supports, such as "13.0"; empty if there is no driver.
std::string CudaDriverVersion();

// The status of `result`; `what` names the action, such as "allocate 12 bytes":
//   Aborted            sticky: the process's use of the GPU is over (illegal address, launch
//                      timeout, memory error, ..); only a new process helps
//   ResourceExhausted  no memory on the device
//   InvalidArgument    the code is not for this GPU, or needs more than it has
//   FailedPrecondition no such device, or a stub driver
//   Internal           everything else
absl::Status CudaStatus(const CudaApi& api, CuResult result, const std::string& what);

}  // namespace heddle::runtime
