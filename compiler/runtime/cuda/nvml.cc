#include "compiler/runtime/cuda/nvml.h"

#include <dlfcn.h>

#include <cstdint>
#include <cstdlib>

#include "absl/strings/str_cat.h"

namespace heddle::runtime {
namespace {

using Device = void*;  // nvmlDevice_t

// From NVIDIA's "NVML API Reference Guide".
constexpr int kClockSm = 1;
constexpr int kClockMemory = 2;
constexpr int kTemperatureGpu = 0;
struct Reason {
  uint64_t bit;
  const char* text;
};
// Unwanted reasons for a lowered clock. An idle GPU and clocks set on purpose are not among them.
constexpr Reason kReasons[] = {{0x4, "power cap"},
                               {0x8, "hardware slowdown"},
                               {0x20, "thermal (driver)"},
                               {0x40, "thermal (hardware)"},
                               {0x80, "power brake"}};

struct Api {
  int (*init)() = nullptr;
  int (*by_pci)(const char*, Device*) = nullptr;
  int (*clock)(Device, int, unsigned*) = nullptr;
  int (*temperature)(Device, int, unsigned*) = nullptr;
  int (*power)(Device, unsigned*) = nullptr;
  int (*throttle)(Device, unsigned long long*) = nullptr;
  int (*lock)(Device, unsigned, unsigned) = nullptr;
  int (*unlock)(Device) = nullptr;
  const char* (*error)(int) = nullptr;
};

template <typename F>
bool Find(void* library, const char* name, F* function) {
  *function = reinterpret_cast<F>(dlsym(library, name));
  return *function != nullptr;
}

const Api* LoadNvml() {
  const char* other = std::getenv("HEDDLE_NVML");  // tests use another library
  void* library = dlopen(other != nullptr && *other != '\0' ? other : "libnvidia-ml.so.1",
                         RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return nullptr;
  static Api api;
  const bool whole = Find(library, "nvmlInit_v2", &api.init) &&
                     Find(library, "nvmlDeviceGetHandleByPciBusId_v2", &api.by_pci) &&
                     Find(library, "nvmlDeviceGetClockInfo", &api.clock) &&
                     Find(library, "nvmlDeviceGetTemperature", &api.temperature) &&
                     Find(library, "nvmlDeviceGetPowerUsage", &api.power) &&
                     Find(library, "nvmlDeviceGetCurrentClocksThrottleReasons", &api.throttle) &&
                     Find(library, "nvmlDeviceSetGpuLockedClocks", &api.lock) &&
                     Find(library, "nvmlDeviceResetGpuLockedClocks", &api.unlock) &&
                     Find(library, "nvmlErrorString", &api.error);
  return whole && api.init() == 0 ? &api : nullptr;
}

const Api* Nvml() {
  static const Api* api = LoadNvml();
  return api;
}

Device Find(const std::string& pci) {
  Device device = nullptr;
  if (Nvml() == nullptr || Nvml()->by_pci(pci.c_str(), &device) != 0) return nullptr;
  return device;
}

}  // namespace

DeviceClimate ReadGpuClimate(const std::string& pci) {
  DeviceClimate climate;
  Device device = Find(pci);
  if (device == nullptr) return climate;
  unsigned value = 0;
  if (Nvml()->clock(device, kClockSm, &value) == 0) climate.mhz = value;
  if (Nvml()->clock(device, kClockMemory, &value) == 0) climate.memory_mhz = value;
  if (Nvml()->temperature(device, kTemperatureGpu, &value) == 0) climate.celsius = value;
  if (Nvml()->power(device, &value) == 0) climate.watts = value / 1000.0;
  unsigned long long reasons = 0;
  if (Nvml()->throttle(device, &reasons) == 0) {
    for (const Reason& reason : kReasons) {
      if ((reasons & reason.bit) == 0) continue;
      absl::StrAppend(&climate.throttled, climate.throttled.empty() ? "" : ", ", reason.text);
    }
  }
  return climate;
}

GpuClockLock::GpuClockLock(const std::string& pci, int mhz) {
  if (mhz <= 0) return;
  device_ = Find(pci);
  if (device_ == nullptr) {
    status_ = absl::FailedPreconditionError(
        "cannot lock the GPU's clock: no management library (libnvidia-ml.so.1) knows this GPU");
    return;
  }
  const unsigned frequency = static_cast<unsigned>(mhz);
  const int result = Nvml()->lock(device_, frequency, frequency);
  locked_ = result == 0;
  if (!locked_) {
    status_ = absl::PermissionDeniedError(
        absl::StrCat("cannot lock the GPU's clock at ", mhz, " MHz: ", Nvml()->error(result)));
  }
}

GpuClockLock::~GpuClockLock() { Unlock(); }

void GpuClockLock::Unlock() {
  if (locked_.exchange(false)) Nvml()->unlock(device_);
}

}  // namespace heddle::runtime
