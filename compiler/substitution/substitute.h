// Applies substitutions of a plan to a graph, one after the other.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compiler/graph/core/graph.h"
#include "compiler/graph/passes/fold_constants.h"
#include "compiler/plan/plan.h"
#include "compiler/substitution/match.h"

namespace heddle::substitution {

// Finds the place that the substitution names, puts the rule's target there, folds what is constant in it, and
// removes what nothing reads any more. A constant of the target is a new one only if the graph has none of this type with
// these elements. The rest of the graph is moved and not built anew, so that a search can afford many of them. New nodes are called like the first node of the source, with a number if that is
// still there. `memo` may be null. The graph is unchanged unless the result is ok. NotFound: there is no such
// rule, or it does not apply to these nodes.
absl::Status Substitute(const std::vector<DirectedRule>& rules,
                        const plan::Substitution& substitution, graph::FoldMemo* memo,
                        graph::Graph* graph);
// The same for a copy.
absl::StatusOr<graph::Graph> Substituted(const graph::Graph& graph,
                                         const std::vector<DirectedRule>& rules,
                                         const plan::Substitution& substitution,
                                         graph::FoldMemo* memo);

}  // namespace heddle::substitution
