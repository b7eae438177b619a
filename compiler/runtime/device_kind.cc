#include "compiler/runtime/device_kind.h"

#include <charconv>

#include "absl/strings/str_cat.h"
#include "compiler/runtime/cuda/cuda_devices.h"

namespace heddle::runtime {
namespace {

using Kind = const DeviceKind& (*)();
constexpr Kind kKinds[] = {CudaDevices};

constexpr int kMaxDevices = 64;  // a larger number is a typing error

}  // namespace

std::vector<const DeviceKind*> DeviceKinds() {
  std::vector<const DeviceKind*> kinds;
  for (const Kind kind : kKinds) kinds.push_back(&kind());
  return kinds;
}

const DeviceKind* FindDeviceKind(std::string_view name) {
  for (const Kind kind : kKinds) {
    if (kind().name() == name) return &kind();
  }
  return nullptr;
}

absl::StatusOr<DeviceName> ParseDevice(std::string_view text) {
  const size_t colon = text.find(':');
  DeviceName device{FindDeviceKind(text.substr(0, colon)), -1};
  if (colon != std::string_view::npos) {
    const char* end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data() + colon + 1, end, device.ordinal);
    if (error != std::errc() || stop != end) device.ordinal = -1;
  }
  if (device.kind == nullptr || device.ordinal < 0 || device.ordinal >= kMaxDevices) {
    std::string known;
    for (const Kind kind : kKinds)
      absl::StrAppend(&known, known.empty() ? "" : " or ", kind().name(), ":0");
    return absl::InvalidArgumentError(
        absl::StrCat("'", std::string(text), "' is no device; name one like ", known));
  }
  return device;
}

}  // namespace heddle::runtime
