// Searches for a cheaper graph by applying rules: best first, with backtracking (TASO, section 2.5). A graph
// that costs more than the best one is still followed if it costs at most `alpha` times as much, because two
// steps may gain where one loses.
//
// A rule is applied at once to all places that are alike: the same operators with the same attributes and
// types. A network repeats its blocks, and what gains in one gains in all.
//
// Graphs are made and evaluated in batches of a fixed size, on several threads. What the search decides
// between batches depends on their results in order, so the number of threads does not matter.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "compiler/graph/core/graph.h"
#include "compiler/graph/passes/fold_constants.h"
#include "compiler/substitution/match.h"
#include "compiler/substitution/substitute.h"

namespace heddle::substitution {

// The cost of a whole graph. If it is above `limit`, any number above the limit will do, so that a function may
// stop at a bound. An error ends the search. The function is called by several threads at once if the search has
// several.
using GraphCost = std::function<absl::StatusOr<double>(const graph::Graph&, double limit)>;

struct SearchedGraph {
  graph::Graph graph;
  std::vector<plan::Substitution> substitutions;  // from the given graph, in their order
  double cost = 0;
};

struct SearchOptions {
  double alpha = 1.05;
  int evaluations = 400;  // of the cost, at most
  int results = 3;        // graphs that are returned
  bool all_alike = true;  // false: one place at a time, so that every combination is reached
  int threads = 1;
  // Graphs that are evaluated right after the given one, and followed like it: what another search found, for
  // instance. Their costs are not read.
  std::vector<SearchedGraph> also = {};
  // A safety. A search that it ends has a result that depends on the machine; the number of evaluations is meant to
  // end it before.
  absl::Duration time_limit = absl::InfiniteDuration();
  // Called after each evaluation, in their order, with their number and the least cost so far.
  std::function<void(int, double)> progress = nullptr;
};

struct SearchResult {
  // Ascending costs, each at most alpha times the least when it was found. The given graph is among them if
  // nothing is cheaper.
  std::vector<SearchedGraph> best;
  int evaluations = 0;
  bool exhausted = false;  // nothing within alpha was left to try
  bool timed_out = false;  // the time limit ended the search
};

// A pure function of its arguments but for the time limit. `memo` keeps folded constants
// (graph/passes/fold_constants.h).
absl::StatusOr<SearchResult> Search(const graph::Graph& graph,
                                    const std::vector<DirectedRule>& rules, const GraphCost& cost,
                                    graph::FoldMemo* memo, const SearchOptions& options = {});

// A digest of what a graph computes: operators, attributes, types and constants, without names. Constants of
// more than a kilobyte are equal if they share their bytes.
std::string GraphDigest(const graph::Graph& graph);

}  // namespace heddle::substitution
