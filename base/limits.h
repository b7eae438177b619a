// Limits of the service that its clients must know of, too.
#pragma once

#include <cstdint>

namespace heddle {

// The most that QueryRecords gives: an answer is held in memory.
inline constexpr int64_t kMaxQueryLimit = 1'000'000;

}  // namespace heddle
