// NVIDIA GPUs as a kind of device (device_kind.h).
#pragma once

#include "compiler/runtime/device_kind.h"

namespace heddle::runtime {

const DeviceKind& CudaDevices();

// CudaDevices().MakeExecutor (executor.cc).
absl::StatusOr<std::unique_ptr<ExecutorBackend>> MakeCudaExecutor(const Module& module,
                                                                  int ordinal);

}  // namespace heddle::runtime
