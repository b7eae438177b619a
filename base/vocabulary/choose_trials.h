// Which trials of a task are shown where there are too many for all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace heddle {

struct ChosenTrial {
  size_t index = 0;
  bool fastest_so_far = false;
};
// Where each trial is faster than the one before it, all of them were the fastest so far.
inline constexpr size_t kMostFastest = 1000;
// Of the median times of trials in their order (0: a failed one), those that were the fastest so far,
// and about `most` others, evenly spread; by index. If more than kMostFastest were the fastest so far,
// so many of them are chosen, evenly spread; the last is always among them.
std::vector<ChosenTrial> ChooseTrials(absl::Span<const double> medians_ns, int64_t most);

}  // namespace heddle
