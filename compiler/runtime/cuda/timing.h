// Time evaluation on a GPU: the same rules as timing.h, by the device's own clock.
#pragma once

#include <functional>

#include "absl/status/statusor.h"
#include "compiler/runtime/cuda/device.h"
#include "compiler/runtime/timing.h"

namespace heddle::runtime {

// `call` gives the device its work and does not wait. Where options.flush_bytes is not 0, memory of
// twice the size of the device's second-level cache (and not flush_bytes) is overwritten before
// every call, outside the time, and events around each call tell its time. Else calls are given in
// batches between two events: after work that keeps the device busy until the host has given it the
// batch, as far as its queue holds one, and after a call that warms the caches again. Errors are
// CudaStatus.
absl::StatusOr<Timing> TimeOnDevice(CudaDevice& device, const std::function<absl::Status()>& call,
                                    const TimingOptions& options = {});

}  // namespace heddle::runtime
