// Limits of the service that its clients must know.
#pragma once

#include <cstddef>
#include <cstdint>

namespace heddle {

// Most records of one answer that is held in memory. A QueryRecords call reads in pages, and gives more if its limit says
// so.
inline constexpr int64_t kMaxQueryLimit = 1'000'000;

// Size of what was measured of a device, as text. It comes with every heartbeat of a worker.
inline constexpr size_t kMaxMachineBytes = 4096;

}  // namespace heddle
