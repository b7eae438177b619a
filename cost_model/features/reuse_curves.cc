#include "cost_model/features/reuse_curves.h"

#include <algorithm>

namespace heddle::cost_model {

ReuseCurves ReuseCurvesOf(const Statement& st, const Access& a) {
  ReuseCurves curves;
  const double size = ir::SizeOf(a.buffer->dtype);
  curves.entries.fill(st.Trips());
  double inside = 1;  // executions of the loops inside the level
  for (size_t level = st.loops.size() + 1; level-- > 0;) {
    if (level < st.loops.size()) inside *= static_cast<double>(st.loops[level].extent);
    const double touched = a.Bytes(level), reuse = inside * size / touched;
    for (size_t t = 0; t < kBytesThresholds; ++t) {
      if (touched > BytesThreshold(t)) continue;
      curves.reuse[t] = std::max(curves.reuse[t], reuse);
      curves.entries[t] = std::min(curves.entries[t], st.Trips() / inside);
    }
    for (size_t t = 0; t < kReuseThresholds; ++t) {
      if (reuse <= ReuseThreshold(t)) curves.touched[t] = std::max(curves.touched[t], touched);
    }
  }
  return curves;
}

}  // namespace heddle::cost_model
