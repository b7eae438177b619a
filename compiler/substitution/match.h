// Finds where a rule applies in a graph, and applies it.
//
// How operators of terms are found in a graph, which has passed Simplify (graph/passes/passes.h):
//
//   add, mul          operators of the same name. An operand may be broadcast.
//   scale             mul by a tensor with one element
//   map               any operator with one operand that works element by element
//   transpose         of the last two dimensions
//   move              reshapes, and transposes of other dimensions
//   matmul            products of matrices or of batches of matrices
//   conv, depthwise   convolutions with one group, and with one for each channel
//   grouped           convolutions with other groups
//   avg_pool, max_pool
//   concat            of two operands
//   split0, split1    slices of one dimension: one begins where it begins, the other ends where it ends
//
//   ones, identity, pool_weights, identity_weights
//                     constants with exactly these elements
//
// Axes 0 and 1 are the rows and columns of matrices in rules with transpose or matmul, else batch and
// channels; in weights, outputs and inputs.
//
// Parameters stand for all attributes that the operator has. A window stands for strides, dilations, and
// padding relative to the kernel's extent, so that an enlarged kernel takes more padding, and so that a pool and
// a convolution can have the same. The kernel of a pool stands for its extents and for what convolutions do not
// have: a pool that is an average of fewer elements at the border, or that rounds its result's extent up where
// that matters, is no depthwise convolution.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/graph/core/graph.h"
#include "compiler/plan/plan.h"
#include "compiler/substitution/term.h"

namespace heddle::substitution {

// A rule as it is applied, from source to target.
struct DirectedRule {
  std::string name;  // of the rule; "reversed " before it for the other direction
  Rule rule;
};

// Every direction of the rules that can be applied: nothing in the target is unknown once the source is
// matched, and the terms of the source are connected. A constant of the target is made with the type that its
// place asks for; a target that has one has no more operators than the source. An enlarged kernel may have an
// unknown extent: it becomes that of another convolution of the same image. So may a factor of groups: each
// divisor of their number is a match.
std::vector<DirectedRule> Applicable(const std::vector<Rule>& rules);

// What one operator of a rule stands for.
struct Binding {
  graph::OpKind kind{};
  graph::Attrs attrs;
  graph::Shape kernel;  // of a pool, or of constant weights
  bool operator==(const Binding&) const = default;
};

struct Match {
  // Indices of the source's nodes, each once, in the order in which the terms name them.
  std::vector<int> nodes;
  std::map<std::string, graph::ValueId> variables;
  std::map<std::string, Binding> parameters;
  std::map<std::string, int64_t> axes;       // parameters that are axes
  std::map<std::string, int64_t> kernels;    // parameters that are extents of kernels, or factors
  std::map<graph::ValueId, int64_t> groups;  // of weights of grouped convolutions
  // Where values are split: by value and dimension, the extent of the first part.
  std::map<std::pair<graph::ValueId, int64_t>, int64_t> splits;
  // Variables that are broadcast operands. A rule takes them for tensors of the full shape, so its target may use
  // them only element by element, or to the left of a product.
  std::set<std::string> broadcast;
  std::vector<graph::ValueId> outputs;  // what the terms of the source are
};

// All matches, in the order of their nodes; at most `limit`.
std::vector<Match> FindMatches(const graph::Graph& graph, const DirectedRule& rule,
                               size_t limit = 1000);

// The graph with the target in place of the source, without dead nodes. FailedPrecondition: the target
// cannot be applied to these operands, gives other types, or would make a cycle.
absl::StatusOr<graph::Graph> Apply(const graph::Graph& graph, const DirectedRule& rule,
                                   const Match& match);

// All matches by the names of their nodes, in the order of FindMatches.
std::vector<plan::Substitution> Named(const graph::Graph& graph, const DirectedRule& rule,
                                      const std::vector<Match>& matches);
// The match that a substitution names. NotFound: there is no such rule, or it does not match these nodes. `rule`
// points into `rules`.
struct NamedMatch {
  const DirectedRule* rule = nullptr;
  Match match;
};
absl::StatusOr<NamedMatch> FindNamed(const graph::Graph& graph,
                                     const std::vector<DirectedRule>& rules,
                                     const plan::Substitution& substitution);
absl::Status DoesNotApply(const plan::Substitution& substitution);  // NotFound

}  // namespace heddle::substitution
