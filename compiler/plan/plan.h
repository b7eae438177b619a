// A plan: what was chosen for a model above its operators. Everything below, the loops of each kernel,
// is a trace (schedule/trace.h).
//
// A plan replays: the same model, options, target and plan give the same kernels, whatever the records
// say today. It is text, one line for each choice. Names are in double quotes, with C escapes:
//
//   plan 1                                   the version of the format
//   substitute "rule" 0 "node 1" "node 2"    a rule, and the nodes that its source matches, in this way: the
//                                            operands of sums, for instance, match in several
//   block 16                                 channels in a block; 0: no operator is blocked
//   layout channels_last "node 3"            the layout of one node
//   separate "value"                         its maker is not fused into a reader
//   columns "value"                          the product that reads this matrix, which a transpose makes, reads it by
//                                            columns, as it lies before the transpose (graph/fusion/fuse.h)
//   forest select "node"                     the form of the forest that this node of the imported graph is
//
// Substitutions are applied in their order, each to the result of those before it; so the order of these
// lines counts. A plan without a `block` line leaves the layouts open: they are then estimated for the
// target (graph/layout/layout_costs.h). With one, nodes without a `layout` line are channels first. The forms of
// forests without a line are estimated, too.
//
// While plans of a job contend, its text has several of them, one behind the other. The first is the chosen one, and it
// counts wherever one plan is wanted.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/graph/layout/layout_plan.h"
#include "compiler/graph/passes/forest_forms.h"

namespace heddle::plan {

struct Substitution {
  std::string rule;
  int way = 0;                     // which match of these nodes, in the order of FindMatches
  std::vector<std::string> nodes;  // of the graph that the substitutions before it made
  bool operator==(const Substitution&) const = default;
};

struct Plan {
  std::vector<Substitution> substitutions;
  std::optional<graph::FixedLayouts> layouts;  // nullopt: open
  std::set<std::string> separate;              // names of values
  std::set<std::string> columns;               // names of values
  graph::ForestForms forests;                  // forests without an entry are open
  bool operator==(const Plan&) const = default;
};

std::string ToText(const Plan& plan);
// At least one. InvalidArgument, naming the line: the text has something else than plans, or a plan of another version. Nothing
// is checked against a graph.
absl::StatusOr<std::vector<Plan>> ParsePlans(std::string_view text);
// The first of them.
absl::StatusOr<Plan> ParsePlan(std::string_view text);

}  // namespace heddle::plan
