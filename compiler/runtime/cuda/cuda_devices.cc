#include "compiler/runtime/cuda/cuda_devices.h"

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "compiler/runtime/cuda/device.h"
#include "compiler/runtime/cuda/driver.h"
#include "compiler/runtime/cuda/nvml.h"
#include "compiler/runtime/executor_backend.h"

namespace heddle::runtime {
namespace {

class Cuda final : public DeviceKind {
  std::string name() const override { return "cuda"; }
  absl::StatusOr<int> Count() const override {
    if (!HasCudaDriver()) return 0;
    return CountCudaDevices();
  }
  absl::StatusOr<DeviceInfo> Describe(int ordinal) const override {
    HEDDLE_ASSIGN_OR_RETURN(const CudaInfo gpu, DescribeCudaDevice(ordinal));
    return DeviceInfo{.target = absl::StrCat("cuda -arch=", gpu.arch),
                      .key = gpu.DeviceKey(),
                      .name = gpu.name,
                      .driver = absl::StrCat("CUDA ", gpu.driver),
                      .address = gpu.pci};
  }
  DeviceClimate ReadClimate(const DeviceInfo& device) const override {
    return ReadGpuClimate(device.address);
  }
  std::unique_ptr<ClockLock> LockClock(const DeviceInfo& device, int mhz) const override {
    return std::make_unique<GpuClockLock>(device.address, mhz);
  }
  absl::StatusOr<std::unique_ptr<ExecutorBackend>> MakeExecutor(const Module& module,
                                                                int ordinal) const override {
    return MakeCudaExecutor(module, ordinal);
  }
};

}  // namespace

const DeviceKind& CudaDevices() {
  static const Cuda kind;
  return kind;
}

}  // namespace heddle::runtime
