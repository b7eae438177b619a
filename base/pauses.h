// Finds pauses in which this process did not run: it was stopped, or its machine slept or gave it no time. Limits that
// others have to keep meanwhile are unjust if such a pause counts. Pure.
#pragma once

#include <algorithm>
#include <utility>

#include "absl/time/time.h"

namespace heddle {

class Pauses {
 public:
  // While the process runs, Look is called at least once in this time.
  explicit Pauses(absl::Duration longest) : longest_(longest) {}

  // By how much the time since the last call is longer than that; 0: it is not, or there was none.
  absl::Duration Look(absl::Time now) {
    return std::max(absl::ZeroDuration(), now - std::exchange(last_, now) - longest_);
  }

 private:
  const absl::Duration longest_;
  absl::Time last_ = absl::InfiniteFuture();
};

}  // namespace heddle
