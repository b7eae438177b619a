// Limits of the service that its clients must know.
#pragma once

#include <cstdint>

namespace heddle {

// Most records that one QueryRecords call returns, since the answer is held in memory.
inline constexpr int64_t kMaxQueryLimit = 1'000'000;

}  // namespace heddle
