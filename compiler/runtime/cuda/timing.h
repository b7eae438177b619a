// Times kernels on a GPU by the rules of timing.h, with the device's clock.
#pragma once

#include <functional>

#include "absl/status/statusor.h"
#include "compiler/runtime/cuda/device.h"
#include "compiler/runtime/timing.h"

namespace heddle::runtime {

// `call` enqueues its work and does not wait. If options.flush_bytes is not 0, memory of twice the
// size of the device's second-level cache (not flush_bytes) is overwritten, untimed, before every
// call, and events around each call give its time. Otherwise calls are enqueued in batches between
// two events. Before each batch, other work keeps the device busy until the host has enqueued the
// batch (as far as the queue holds it), and one call warms the caches. Errors as CudaStatus.
absl::StatusOr<Timing> TimeOnDevice(CudaDevice& device, const std::function<absl::Status()>& call,
                                    const TimingOptions& options = {});

}  // namespace heddle::runtime
