// Clocks and temperature of GPUs, from NVIDIA's management library (libnvidia-ml.so.1), which is
// loaded when first needed. It is optional: if it is absent or refuses, values are 0.
#pragma once

#include <atomic>
#include <string>

#include "absl/status/status.h"

namespace heddle::runtime {

struct GpuClimate {
  double sm_mhz = 0;
  double memory_mhz = 0;
  double celsius = 0;
  double watts = 0;
  std::string throttled;  // why the clock is lowered, "power cap, thermal"; empty if it is not
};

// `pci` is CudaInfo.pci.
GpuClimate ReadGpuClimate(const std::string& pci);

// Locks the clock of the multiprocessors at one frequency for the lifetime of the object. If that
// is not permitted, ok() of status() is false, and status() says why.
class GpuClockLock {
 public:
  // mhz = 0 locks nothing.
  GpuClockLock(const std::string& pci, int mhz);
  ~GpuClockLock();
  GpuClockLock(const GpuClockLock&) = delete;
  const absl::Status& status() const { return status_; }
  // Unlocks early, like the destructor. May be called from any thread.
  void Unlock();

 private:
  void* device_ = nullptr;
  std::atomic<bool> locked_ = false;
  absl::Status status_;
};

}  // namespace heddle::runtime
