// What a worker offers, from its command line.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace heddle::worker {

struct SlotConfig {
  std::string name;  // "cpu0", "profile0-1"
  bool device = false;
  std::vector<int> cores;  // ascending; a GPU's slot has none: its host threads run with our own
  // A GPU's slot: "cuda:0", and what it is; else empty.
  std::string gpu{};
  std::string device_key{};
  std::string target{};
};

// Each value holds slots separated by commas; a slot is core numbers joined by '-' ("0-1" is one
// slot of the cores 0 and 1, "0-2" one of 0 and 2); there may be none. InvalidArgument names what
// is malformed, given twice, or not on this machine.
absl::StatusOr<std::vector<SlotConfig>> ParseSlots(const std::vector<std::string>& cpu,
                                                   const std::vector<std::string>& device,
                                                   const std::vector<int>& usable_cores);

// The slots of GPUs ("cuda:0", ..); each value holds some, separated by commas. What they are is
// for the caller to fill in. InvalidArgument as above.
absl::StatusOr<std::vector<SlotConfig>> ParseGpuSlots(const std::vector<std::string>& values);

// Cores this process may run on.
std::vector<int> UsableCores();

// Where the worker's own threads run: the usable cores that no device slot has; where there are
// none, those of the CPU slots; failing that, all.
std::vector<int> SupervisorCores(const std::vector<SlotConfig>& slots,
                                 const std::vector<int>& usable_cores);

bool ShareCore(const SlotConfig& a, const SlotConfig& b);

}  // namespace heddle::worker
