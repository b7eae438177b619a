// Clocks and temperature of GPUs, from NVIDIA's management library (libnvidia-ml.so.1), loaded when
// first needed. All of it is optional: where the library is absent or refuses, values are 0.
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
  std::string throttled;  // why the clock is held down: "power cap, thermal"; empty: it is not
};

// `pci` is CudaInfo.pci.
GpuClimate ReadGpuClimate(const std::string& pci);

// Holds the clock of the multiprocessors at one frequency while it lives. Needs the right to do so;
// ok() is false, and status() says why, where it is not given.
class GpuClockLock {
 public:
  // 0 MHz: locks nothing.
  GpuClockLock(const std::string& pci, int mhz);
  ~GpuClockLock();
  GpuClockLock(const GpuClockLock&) = delete;
  const absl::Status& status() const { return status_; }
  // As at the end of its life. Any thread may.
  void Unlock();

 private:
  void* device_ = nullptr;
  std::atomic<bool> locked_ = false;
  absl::Status status_;
};

}  // namespace heddle::runtime
