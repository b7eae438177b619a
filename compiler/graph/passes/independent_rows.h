#pragma once

#include "compiler/graph/core/graph.h"

namespace heddle::graph {

// Whether every input and output counts the same rows in dimension 0, and what an output has for a row depends on that row
// of the inputs alone, and not on the row's number. So the graph may compute any number of rows in blocks.
//
// Follows the dimension of the rows from operator to operator. False if an operator mixes rows, or if it is none of those
// that models of tables are made of. With one row, other dimensions of extent 1 cannot be told from the rows, so the answer
// counts only for graphs of two rows or more.
bool HasIndependentRows(const Graph& graph);

}  // namespace heddle::graph
