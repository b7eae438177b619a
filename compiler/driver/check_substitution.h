// The last judge of a substitution, after fingerprints and proof: what it replaces and what it puts there are
// evaluated on random inputs.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "compiler/graph/core/graph.h"
#include "compiler/substitution/match.h"

namespace heddle {

// Checks a substitution that replays on `graph`. Images and the rows of left operands are cut to a few elements
// where the matched operators allow it, because the interpreter evaluates them. `checked` remembers places
// that are alike, so that each kind is evaluated once. Internal, naming the rule and the first node: the
// results differ by more than rounding. Otherwise errors of Replay.
absl::Status CheckSubstitution(const graph::Graph& graph,
                               const std::vector<substitution::DirectedRule>& rules,
                               const plan::Substitution& substitution,
                               std::set<std::string>* checked);

}  // namespace heddle
