// The last judge of a substitution, after fingerprints and proof: what it replaces and what it puts there are
// evaluated on random inputs.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/graph/core/graph.h"
#include "compiler/graph/passes/fold_constants.h"
#include "compiler/substitution/match.h"

namespace heddle {

// Applies substitutions one after the other (substitution/substitute.h), and checks each on random inputs: the matched
// nodes alone, with extents so small that the interpreter takes about a second, and that by the very code that
// changes the graph. A graph whose evaluation takes no longer is checked as a whole, too. Results may differ by as much
// of the largest magnitude as a kernel's may (kDirectTolerance of runtime/numerics.h), and in 16-bit types by four units in
// the last place more. `checked` remembers places that are alike, so that each kind is evaluated once.
// FailedPrecondition, naming the rule and the first node: results differ by more, or the nodes cannot be evaluated in
// that time. Otherwise errors of Substitute.
absl::StatusOr<graph::Graph> SubstitutedAndChecked(
    const graph::Graph& graph, const std::vector<substitution::DirectedRule>& rules,
    const std::vector<plan::Substitution>& substitutions, graph::FoldMemo* memo,
    std::set<std::string>* checked);

}  // namespace heddle
