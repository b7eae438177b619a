// Time evaluation on a GPU: the same rules as timing.h, by the device's own clock.
#pragma once

#include <functional>

#include "absl/status/statusor.h"
#include "compiler/runtime/cuda_device.h"
#include "compiler/runtime/timing.h"

namespace heddle::runtime {

// `call` gives the device its work and does not wait. Where options.flush_bytes is not 0, memory of
// twice the size of the device's second-level cache (and not flush_bytes) is overwritten before
// every call, outside the time. Events around each call tell its time; calls are given in batches,
// so that the device never waits for the host between the two. Errors are CudaStatus.
absl::StatusOr<Timing> TimeOnDevice(CudaDevice& device, const std::function<absl::Status()>& call,
                                    const TimingOptions& options = {});

}  // namespace heddle::runtime
