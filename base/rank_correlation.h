// How alike two orders of the same things are.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <optional>
#include <vector>

namespace heddle {

// The rank of each value, from 0 for the smallest. Equal values share the mean of their ranks.
inline std::vector<double> RanksOf(const std::vector<double>& values) {
  std::vector<size_t> order(values.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return values[a] < values[b]; });
  std::vector<double> ranks(values.size());
  for (size_t begin = 0; begin < order.size();) {
    size_t end = begin + 1;
    while (end < order.size() && values[order[end]] == values[order[begin]]) ++end;
    const double mean = static_cast<double>(begin + end - 1) / 2;
    for (size_t i = begin; i < end; ++i) ranks[order[i]] = mean;
    begin = end;
  }
  return ranks;
}

// Spearman's correlation of values that have these ranks (RanksOf), from -1 to 1. nullopt if all values of one side are
// equal, or there are none.
inline std::optional<double> RankCorrelation(const std::vector<double>& ranks,
                                             const std::vector<double>& others) {
  // The mean of ranks is the same whatever ties there are.
  const double mean = (static_cast<double>(ranks.size()) - 1) / 2;
  double own = 0, theirs = 0, both = 0;
  for (size_t i = 0; i < ranks.size(); ++i) {
    own += (ranks[i] - mean) * (ranks[i] - mean);
    theirs += (others[i] - mean) * (others[i] - mean);
    both += (ranks[i] - mean) * (others[i] - mean);
  }
  if (own <= 0 || theirs <= 0) return std::nullopt;
  return both / std::sqrt(own * theirs);
}

}  // namespace heddle
