#include "cost_model/features/reuse_curves.h"

#include <algorithm>

namespace heddle::cost_model {

Relation RelationOf(const Statement& st, const Access& a) {
  Relation relation;
  const double size = ir::SizeOf(a.buffer->dtype);
  relation.entries.fill(st.Trips());
  double inside = 1;  // executions of the loops inside the level
  for (size_t level = st.loops.size() + 1; level-- > 0;) {
    if (level < st.loops.size()) inside *= static_cast<double>(st.loops[level].extent);
    const double touched = a.Bytes(level), reuse = inside * size / touched;
    for (size_t t = 0; t < kRelationBytes; ++t) {
      if (touched > BytesThreshold(t)) continue;
      relation.reuse[t] = std::max(relation.reuse[t], reuse);
      relation.entries[t] = std::min(relation.entries[t], st.Trips() / inside);
    }
    for (size_t t = 0; t < kRelationReuse; ++t) {
      if (reuse <= ReuseThreshold(t)) relation.touched[t] = std::max(relation.touched[t], touched);
    }
  }
  return relation;
}

}  // namespace heddle::cost_model
