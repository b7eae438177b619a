#include "cost_model/features/roofline.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "cost_model/features/features.h"

namespace heddle::cost_model {

size_t EstimateColumn() {
  static const size_t kColumn = [] {
    const std::span<const FeatureInfo> table = FeatureTable();
    const auto it = std::find_if(table.begin(), table.end(),
                                 [](const FeatureInfo& f) { return f.name == "estimate.cycles"; });
    if (it == table.end()) {  // a mistake in the table, which a test finds
      std::fprintf(stderr, "roofline: no feature estimate.cycles\n");
      std::abort();
    }
    return static_cast<size_t>(it - table.begin());
  }();
  return kColumn;
}

float RooflineScore(const std::vector<float>& features) { return -features[EstimateColumn()]; }

}  // namespace heddle::cost_model
