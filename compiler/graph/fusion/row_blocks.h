// The kernels of each block of rows (graph/core/row_blocks.h).
#pragma once

#include <cstdint>
#include <vector>

#include "compiler/graph/fusion/fuse.h"

namespace heddle::graph {

// What one block of rows needs.
struct BlockGroups {
  std::vector<int> groups;  // indices into FusedGraph::groups, in execution order
  // How often the block runs if each block is given as many rows: the rows of the largest block over its own,
  // rounded up (RunsOfBlock).
  int64_t runs = 1;
};

// By block, in the order of Tables::blocks. A graph without blocks has one, with all groups.
std::vector<BlockGroups> GroupsByBlock(const FusedGraph& fused);

// Whether no kernel computes for two blocks, as a substitution could make it. Such a graph is no module. Kernels of constants may
// serve several blocks.
bool BlocksAreApart(const FusedGraph& fused);

// By group: how often it runs if each block is given as many rows. 1 for all groups of a graph without blocks.
std::vector<int64_t> RunsOfGroups(const FusedGraph& fused);

}  // namespace heddle::graph
