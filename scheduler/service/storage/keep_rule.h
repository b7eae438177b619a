// Which finished jobs keep everything (StoreService.Collect).
#pragma once

#include <cstdint>

#include "absl/time/time.h"

namespace heddle::scheduler {

// A job is collected if it ended longer ago than `age` and is not among the `jobs` that ended last.
struct KeepRule {
  absl::Duration age = absl::Hours(24 * 30);
  int64_t jobs = 0;
};

}  // namespace heddle::scheduler
