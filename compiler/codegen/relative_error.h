// How far one result is from another.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace heddle::codegen {

// Largest difference relative to the largest magnitude of what is expected; infinite where only one
// of the two is finite, or where their lengths differ.
template <typename T>
double RelativeError(const std::vector<T>& found, const std::vector<T>& expected) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (found.size() != expected.size()) return kInfinity;
  double scale = 0, difference = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    const double a = found[i], b = expected[i];
    if (std::isnan(a) && std::isnan(b)) continue;
    if (!std::isfinite(a) || !std::isfinite(b)) {
      if (a == b) continue;
      return kInfinity;
    }
    scale = std::max(scale, std::fabs(b));
    difference = std::max(difference, std::fabs(a - b));
  }
  return difference == 0 ? 0 : difference / std::max(scale, 1e-30);
}

}  // namespace heddle::codegen
