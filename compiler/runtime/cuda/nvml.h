// Clocks and temperature of GPUs, from NVIDIA's management library (libnvidia-ml.so.1), which is
// loaded when first needed. It is optional: if it is absent or refuses, values are 0.
#pragma once

#include <atomic>
#include <string>

#include "absl/status/status.h"
#include "compiler/runtime/device_kind.h"

namespace heddle::runtime {

// `pci` is CudaInfo.pci.
DeviceClimate ReadGpuClimate(const std::string& pci);

// Locks the clock of the multiprocessors at one frequency for the lifetime of the object. If that
// is not permitted, ok() of status() is false, and status() says why.
class GpuClockLock final : public ClockLock {
 public:
  // mhz = 0 locks nothing.
  GpuClockLock(const std::string& pci, int mhz);
  ~GpuClockLock() override;
  GpuClockLock(const GpuClockLock&) = delete;
  const absl::Status& status() const override { return status_; }
  void Unlock() override;

 private:
  void* device_ = nullptr;
  std::atomic<bool> locked_ = false;
  absl::Status status_;
};

}  // namespace heddle::runtime
