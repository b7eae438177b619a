// Applies the rules that gain wherever they make less to move, so that no search and no measured costs are needed.
#pragma once

#include "absl/status/statusor.h"
#include "compiler/graph/core/graph.h"
#include "compiler/graph/passes/fold_constants.h"

namespace heddle::substitution {

// After: where the result of a channel concatenation is read only by a pool or only by a convolution, and what
// that computes is smaller than what is concatenated:
//  - The concatenation follows the pool.
//  - The convolution is a sum of one for each part, if there are two parts, and the weights are constant.
absl::StatusOr<graph::Graph> ApplyRules(const graph::Graph& graph, graph::FoldMemo* memo = nullptr);

}  // namespace heddle::substitution
