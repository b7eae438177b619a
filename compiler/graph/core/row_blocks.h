// One graph that holds a model for several numbers of rows, so that one module runs any number of them: it cuts them into
// blocks of these sizes.
#pragma once

#include <cstddef>

#include "absl/status/status.h"
#include "compiler/graph/core/graph.h"

namespace heddle::graph {

// Before: `block` is the model of `graph` for fewer rows than any that `graph` has, and rows are independent in both. After:
// `graph` computes both, and Tables::blocks has one entry more. A constant that both have, with the same name and elements, is
// there once. Other values and nodes of the block get its number of rows behind their names: "forest@16". InvalidArgument: as
// CheckTables.
absl::Status AddRowBlock(const Graph& block, Graph* graph);

// The model of `graph` for its block `block` alone, an index into Tables::blocks; 0 for a graph without blocks. Inputs and outputs have
// the names of the model.
Graph RowBlock(const Graph& graph, size_t block);

}  // namespace heddle::graph
