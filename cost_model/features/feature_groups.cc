#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "cost_model/features/features.h"

namespace heddle::cost_model {

std::vector<std::string> FeatureGroups() {
  std::vector<std::string> groups;
  for (const FeatureInfo& f : FeatureTable()) {
    if (groups.empty() || groups.back() != f.group) groups.push_back(f.group);
  }
  return groups;
}

absl::StatusOr<std::vector<size_t>> ColumnsWithout(std::span<const std::string> groups) {
  const std::vector<std::string> known = FeatureGroups();
  for (const std::string& group : groups) {
    if (std::find(known.begin(), known.end(), group) != known.end()) continue;
    std::string names;
    for (const std::string& name : known) names += (names.empty() ? "" : ", ") + name;
    return absl::InvalidArgumentError("no feature group '" + group + "'; there are: " + names);
  }
  const std::span<const FeatureInfo> table = FeatureTable();
  std::vector<size_t> columns;
  for (size_t k = 0; k < table.size(); ++k) {
    if (std::find(groups.begin(), groups.end(), table[k].group) == groups.end()) {
      columns.push_back(k);
    }
  }
  return columns;
}

std::vector<std::vector<size_t>> LoopTokens(const std::vector<size_t>& columns) {
  const std::span<const FeatureInfo> table = FeatureTable();
  std::vector<std::vector<size_t>> tokens;
  std::string last;  // loop, "loop3" of "loop3.extent"
  for (size_t k = 0; k < columns.size(); ++k) {
    const FeatureInfo& info = table[columns[k]];
    if (info.group != "loop") continue;
    std::string loop = info.name.substr(0, info.name.find('.'));
    if (loop != last) tokens.emplace_back();
    last = std::move(loop);
    tokens.back().push_back(k);
  }
  return tokens;
}

std::vector<float> Pick(const std::vector<float>& features, const std::vector<size_t>& columns) {
  if (columns.size() == features.size()) return features;
  std::vector<float> picked;
  picked.reserve(columns.size());
  for (const size_t k : columns) picked.push_back(features[k]);
  return picked;
}

}  // namespace heddle::cost_model
