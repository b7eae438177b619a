#include "compiler/classical/sample_values.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace heddle::classical {
namespace {

constexpr size_t kMostOfFeature = 32;
// Of more nodes, every second, third, .. is looked at.
constexpr size_t kMostLookedAt = size_t{1} << 20;

// What one node compares its feature with. A split by categories tells each of its members from all others, so one member stands for it,
// a different one for each node.
float ComparedWith(const Column& column, const Node& node, size_t number) {
  if (column.kind == Column::Kind::kValue) return node.threshold;
  if (column.members.empty()) return 0;
  return static_cast<float>(column.members[number % column.members.size()]);
}

// `thresholds`: sorted, finite, at least one. `most` is at least two.
std::vector<float> ValuesAround(const std::vector<float>& thresholds, size_t most) {
  const float least = thresholds.front();
  std::vector<float> values = {std::nextafter(least, -std::numeric_limits<float>::max())};
  const size_t parts = std::min(most - 1, thresholds.size());
  for (size_t k = 0; k < parts; ++k) {
    const float quantile = thresholds[(2 * k + 1) * thresholds.size() / (2 * parts)];
    if (quantile != values.back()) values.push_back(quantile);
  }
  return values;
}

}  // namespace

std::vector<std::vector<float>> SampleValues(const Forest& forest, size_t most) {
  const auto features = static_cast<size_t>(forest.features);
  const size_t of_feature = features == 0 ? 0 : std::min(kMostOfFeature, most / features);
  if (of_feature < 2) return {};
  size_t nodes = 0;
  for (const Tree& tree : forest.trees) nodes += tree.nodes.size();
  const size_t stride = nodes / kMostLookedAt + 1;
  std::vector<std::vector<float>> thresholds(features);
  size_t number = 0;
  for (const Tree& tree : forest.trees) {
    for (const Node& node : tree.nodes) {
      if (number++ % stride != 0) continue;
      const Column& column = forest.columns[static_cast<size_t>(node.column)];
      const float threshold = ComparedWith(column, node, number);
      if (std::isfinite(threshold))
        thresholds[static_cast<size_t>(column.feature)].push_back(threshold);
    }
  }
  std::vector<std::vector<float>> values(features);
  for (size_t k = 0; k < features; ++k) {
    if (thresholds[k].empty()) continue;
    std::sort(thresholds[k].begin(), thresholds[k].end());
    values[k] = ValuesAround(thresholds[k], of_feature);
  }
  return values;
}

}  // namespace heddle::classical
