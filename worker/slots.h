// The slots of a worker, from its command line.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace heddle::worker {

struct SlotConfig {
  std::string name;  // "cpu0", "profile0-1"
  bool device = false;
  // Ascending; empty for a GPU, whose host threads use the worker's own cores.
  std::vector<int> cores;
  // For a GPU: "cuda:0" and its description; otherwise empty.
  std::string gpu{};
  std::string device_key{};
  std::string target{};
};

// Each value is a list of slots separated by commas, possibly empty. A slot is core numbers joined
// by '-': "0-1" is one slot of the cores 0 and 1, "0-2" one of 0 and 2. "auto" alone is every usable
// core, a slot each; where both are "auto", the last half measures, and the others are CPU slots.
// InvalidArgument names a part that is malformed, given twice, or not on this machine.
absl::StatusOr<std::vector<SlotConfig>> ParseSlots(const std::vector<std::string>& cpu,
                                                   const std::vector<std::string>& device,
                                                   const std::vector<int>& usable_cores);

// The slots of GPUs; each value is a list such as "cuda:0,cuda:1". The caller checks that the
// kinds exist, and fills in the descriptions. InvalidArgument as above.
absl::StatusOr<std::vector<SlotConfig>> ParseGpuSlots(const std::vector<std::string>& values);

// Cores this process may run on.
std::vector<int> UsableCores();

// The cores of the worker's own threads: usable cores outside all device slots; if there are none,
// those of the CPU slots; otherwise all.
std::vector<int> SupervisorCores(const std::vector<SlotConfig>& slots,
                                 const std::vector<int>& usable_cores);

bool ShareCore(const SlotConfig& a, const SlotConfig& b);

}  // namespace heddle::worker
