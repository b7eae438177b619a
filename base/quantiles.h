// Quantiles and medians of what was measured.
//
// A quantile is by nearest rank: of n values, the quantile `share` is the least value that at least share * n of them do not
// exceed. So it is always one of the values; 0 gives the least one, 1 the greatest (Hyndman and Fan 1996, "Sample quantiles in
// statistical packages", definition 1). It suits tails and limits: nobody waited for a time between two that were measured.
//
// The median is the mean of the two middle values where the number of values is even, as everywhere else. A quantile 0.5 is the
// lower one of them.
//
// Of no values, all of them are Value(): zero. Values that are not numbers (NaN) have no place in an order, and are not allowed.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <vector>

namespace heddle {

// The place of the quantile `share` in [0, 1] among `count` sorted values, from 1 to `count`; 1 of no values. For those who count
// values instead of keeping them.
inline int64_t NearestRank(int64_t count, double share) {
  // The product can be a little too large: in doubles, 0.07 * 100 is above 7. It is made smaller by as much.
  constexpr double kDown = 1 - 4 * std::numeric_limits<double>::epsilon();
  const auto rank = static_cast<int64_t>(std::ceil(share * static_cast<double>(count) * kDown));
  return std::max<int64_t>(1, std::min(rank, count));
}

template <typename Value>
Value QuantileOfSorted(const std::vector<Value>& sorted, double share) {
  if (sorted.empty()) return Value();
  return sorted[static_cast<size_t>(NearestRank(static_cast<int64_t>(sorted.size()), share) - 1)];
}

// Of values in any order.
template <typename Value>
Value Quantile(std::vector<Value> values, double share) {
  std::sort(values.begin(), values.end());
  return QuantileOfSorted(values, share);
}

// Of values in any order; of doubles if they are given in braces.
template <typename Value = double>
Value Median(std::vector<Value> values) {
  static_assert(!std::is_integral_v<Value>, "the mean of two integers may be none");
  if (values.empty()) return Value();
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

}  // namespace heddle
