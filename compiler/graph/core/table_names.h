// Names of columns and labels that a model may not have.
#pragma once

#include <string>
#include <vector>

#include "compiler/graph/core/graph.h"

namespace heddle::graph {

// Before: graph->tables has the names that a model's file gives. After: every list of names keeps the limits that CheckTables asks
// for (kMostNames, kMostNameBytes). A list that does not is left out as a whole. Names are there to be read, so that the model computes
// the same without them. Returns a line for each list that is left out, which names the input or output.
std::vector<std::string> DropNamesOverLimits(Graph* graph);

}  // namespace heddle::graph
