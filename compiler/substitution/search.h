// Searches for a cheaper graph by applying rules: best first, with backtracking (TASO, section 2.5). A graph
// that costs more than the best one is still followed if it costs at most `alpha` times as much, because two
// steps may gain where one loses.
//
// A rule is applied at once to all places that are alike: the same operators with the same attributes and
// types. A network repeats its blocks, and what gains in one gains in all.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/graph/core/graph.h"
#include "compiler/graph/passes/fold_constants.h"
#include "compiler/substitution/match.h"

namespace heddle::substitution {

struct SearchOptions {
  double alpha = 1.05;
  int evaluations = 400;  // of the cost, at most
  int results = 3;        // graphs that are returned
  bool all_alike = true;  // false: one place at a time, so that every combination is reached
  // Called after each evaluation with their number and the least cost so far.
  std::function<void(int, double)> progress = nullptr;
};

struct SearchedGraph {
  graph::Graph graph;
  std::vector<plan::Substitution> substitutions;  // from the given graph, in their order
  double cost = 0;
};

struct SearchResult {
  std::vector<SearchedGraph>
      best;  // ascending costs; the given graph is among them if nothing is cheaper
  int evaluations = 0;
  bool exhausted = false;  // nothing within alpha was left to try
};

// The cost of a whole graph. An error ends the search.
using GraphCost = std::function<absl::StatusOr<double>(const graph::Graph&)>;

// A pure function of its arguments. `memo` keeps folded constants (graph/passes/fold_constants.h).
absl::StatusOr<SearchResult> Search(const graph::Graph& graph,
                                    const std::vector<DirectedRule>& rules, const GraphCost& cost,
                                    graph::FoldMemo* memo, const SearchOptions& options = {});

// A digest of what a graph computes: operators, attributes, types and constants, without names. Constants are
// equal if they share their bytes.
std::string GraphDigest(const graph::Graph& graph);

// The graph after one substitution: replayed, and constants folded.
absl::StatusOr<graph::Graph> Substituted(const graph::Graph& graph,
                                         const std::vector<DirectedRule>& rules,
                                         const plan::Substitution& substitution,
                                         graph::FoldMemo* memo);

}  // namespace heddle::substitution
