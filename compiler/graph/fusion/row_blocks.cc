#include "compiler/graph/fusion/row_blocks.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

#include "base/vocabulary/row_blocks.h"

namespace heddle::graph {

std::vector<BlockGroups> GroupsByBlock(const FusedGraph& fused) {
  const std::vector<int64_t>& blocks = fused.graph.tables.blocks;
  if (blocks.empty()) {
    BlockGroups all;
    all.groups.resize(fused.groups.size());
    std::iota(all.groups.begin(), all.groups.end(), 0);
    return {std::move(all)};
  }
  std::vector<BlockGroups> found;
  const size_t outputs = fused.graph.outputs.size() / blocks.size();
  for (size_t b = 0; b < blocks.size(); ++b) {
    BlockGroups& block = found.emplace_back();
    block.runs = RunsOfBlock(blocks[0], blocks[b]);
    std::set<ValueId> needed;
    for (size_t i = b * outputs; i < (b + 1) * outputs; ++i)
      needed.insert(fused.MemoryOf(fused.graph.outputs[i]));
    for (size_t g = fused.groups.size(); g-- > 0;) {
      const Group& group = fused.groups[g];
      const bool makes = std::any_of(group.outputs.begin(), group.outputs.end(),
                                     [&](ValueId v) { return needed.contains(fused.MemoryOf(v)); });
      if (!makes) continue;
      block.groups.push_back(static_cast<int>(g));
      for (ValueId v : group.inputs) needed.insert(fused.MemoryOf(v));
    }
    std::reverse(block.groups.begin(), block.groups.end());
  }
  return found;
}

bool BlocksAreApart(const FusedGraph& fused) {
  std::vector<int> blocks_of(fused.groups.size(), 0);
  for (const BlockGroups& block : GroupsByBlock(fused)) {
    for (int g : block.groups) {
      const std::vector<ValueId>& inputs = fused.groups[static_cast<size_t>(g)].inputs;
      const bool fixed = std::all_of(inputs.begin(), inputs.end(),
                                     [&](ValueId v) { return fused.graph.constants.contains(v); });
      if (!fixed && ++blocks_of[static_cast<size_t>(g)] > 1) return false;
    }
  }
  return true;
}

std::vector<int64_t> RunsOfGroups(const FusedGraph& fused) {
  std::vector<int64_t> runs(fused.groups.size(), 0);
  for (const BlockGroups& block : GroupsByBlock(fused)) {
    for (int g : block.groups) runs[static_cast<size_t>(g)] += block.runs;
  }
  return runs;
}

}  // namespace heddle::graph
