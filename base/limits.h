// Limits of the service that its clients must know.
#pragma once

#include <cstddef>
#include <cstdint>

namespace heddle {

// Most records that one QueryRecords call returns, since the answer is held in memory.
inline constexpr int64_t kMaxQueryLimit = 1'000'000;

// Size of what was measured of a device, as text. It comes with every heartbeat of a worker.
inline constexpr size_t kMaxMachineBytes = 4096;

}  // namespace heddle
