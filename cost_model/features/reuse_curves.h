// Reuse curves: how much an access touches and reuses inside each loop around its statement. Each
// loop is one point: the bytes that the access touches inside the loop, how often it uses each of
// them there, and how often the loop runs. The points are kept as curves over fixed thresholds. So
// the curves of every nest have one length, and they mean the same for every operator: what a model
// learns from them transfers. (The context relation features of AutoTVM.)
#pragma once

#include <array>
#include <cstddef>

#include "cost_model/features/statements.h"

namespace heddle::cost_model {

inline constexpr size_t kBytesThresholds = 10;  // 2^6, 2^8, .. 2^24 bytes
inline constexpr size_t kReuseThresholds = 7;   // 2^1, 2^3, .. 2^13 executions per element

constexpr double BytesThreshold(size_t t) { return static_cast<double>(size_t{64} << (2 * t)); }
constexpr double ReuseThreshold(size_t t) { return static_cast<double>(size_t{2} << (2 * t)); }

struct ReuseCurves {
  // By BytesThreshold, among the loops inside which the access touches at most that many bytes:
  std::array<double, kBytesThresholds> reuse{};    // the largest reuse
  std::array<double, kBytesThresholds> entries{};  // the fewest runs of the loops outside
  // By ReuseThreshold: the most bytes touched among the loops with at most that much reuse.
  std::array<double, kReuseThresholds> touched{};
};

// Points run from one execution (one element, reuse 1) to the whole nest.
ReuseCurves ReuseCurvesOf(const Statement& statement, const Access& access);

}  // namespace heddle::cost_model
