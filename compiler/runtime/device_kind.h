// Devices that run kernels instead of this machine's CPU. A kind of device is a folder below this
// one and an element of the list in device_kind.cc. Callers look up the kind of a target or of a
// device's name and never ask which one it is. Code for a target whose kind is not in the list is an
// ELF shared object for this machine's CPU.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace heddle::runtime {

class ExecutorBackend;
struct Module;

struct DeviceInfo {
  std::string target;   // whose code it runs, canonical text: "cuda -arch=sm_90"
  std::string key;      // the name of the class of identical devices: "nvidia-h200-sm_90"
  std::string name;     // "NVIDIA H200"
  std::string driver;   // "CUDA 13.0"
  std::string address;  // names it to the library that reads its climate: "0000:1b:00.0"
};

// What is not known is 0.
struct DeviceClimate {
  double mhz = 0;
  double memory_mhz = 0;
  double celsius = 0;
  double watts = 0;
  std::string throttled;  // why the clock is lowered, "power cap, thermal"; empty if it is not
};

// Holds the clock of a device at one frequency for the lifetime of the object.
class ClockLock {
 public:
  virtual ~ClockLock() = default;
  // Why the clock is not held. OK if it is, or if none was asked for.
  virtual const absl::Status& status() const = 0;
  // Unlocks early, like the destructor. May be called from any thread.
  virtual void Unlock() = 0;
};

// Stateless and thread-safe.
class DeviceKind {
 public:
  virtual ~DeviceKind() = default;
  // The first word of its targets, and of its devices' names: "cuda".
  virtual std::string name() const = 0;
  // How many devices there are; 0 where there is no driver. FailedPrecondition: the driver does not work.
  virtual absl::StatusOr<int> Count() const = 0;
  // Unavailable: no driver. FailedPrecondition, with the number of devices: there is no such
  // device.
  virtual absl::StatusOr<DeviceInfo> Describe(int ordinal) const = 0;
  virtual DeviceClimate ReadClimate(const DeviceInfo& device) const = 0;
  // mhz = 0 locks nothing.
  virtual std::unique_ptr<ClockLock> LockClock(const DeviceInfo& device, int mhz) const = 0;
  // `module` must have passed CheckModule. Errors as Executor::Create.
  virtual absl::StatusOr<std::unique_ptr<ExecutorBackend>> MakeExecutor(const Module& module,
                                                                        int ordinal) const = 0;
};

std::vector<const DeviceKind*> DeviceKinds();
// Null: there is no such kind.
const DeviceKind* FindDeviceKind(std::string_view name);

struct DeviceName {
  const DeviceKind* kind;
  int ordinal;
};
// "cuda:0". InvalidArgument: the text is malformed, or there is no such kind.
absl::StatusOr<DeviceName> ParseDevice(std::string_view text);

}  // namespace heddle::runtime
