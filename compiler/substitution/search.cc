#include "compiler/substitution/search.h"

#include <algorithm>
#include <map>
#include <memory>
#include <queue>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/sha256.h"
#include "base/status_macros.h"
#include "compiler/graph/core/operator.h"

namespace heddle::substitution {
namespace {

using graph::Graph;
using graph::Node;
using graph::OpKind;
using graph::ValueId;

// How alike two places are: what the matched nodes are, and what they read.
std::string SignatureOf(const Graph& graph, const Match& match) {
  std::string signature;
  for (const int n : match.nodes) {
    const Node& node = graph.nodes[static_cast<size_t>(n)];
    absl::StrAppend(&signature, graph::NameOf(node.kind), graph::ExactText(node.attrs));
    for (const ValueId v : node.inputs) {
      absl::StrAppend(&signature, graph.constants.contains(v) ? "c" : "v",
                      graph::ToText(graph.values[static_cast<size_t>(v)].type));
    }
    signature += ';';
  }
  for (const auto& [name, extent] : match.kernels) absl::StrAppend(&signature, name, extent);
  return signature;
}

// Whether the graph has the operators that the rule's source needs.
bool MayMatch(const std::set<OpKind>& kinds, const Term& term) {
  for (const Term& operand : term.operands) {
    if (!MayMatch(kinds, operand)) return false;
  }
  switch (term.op) {
    case Op::kAdd:
      return kinds.contains(OpKind::kAdd);
    case Op::kMul:
    case Op::kScale:
      return kinds.contains(OpKind::kMul);
    case Op::kTranspose:
      return kinds.contains(OpKind::kTranspose);
    case Op::kMatmul:
      return kinds.contains(OpKind::kMatmul);
    case Op::kConv:
    case Op::kDepthwise:
    case Op::kGrouped:
      return std::any_of(graph::kConvolutions.begin(), graph::kConvolutions.end(),
                         [&](OpKind kind) { return kinds.contains(kind); });
    case Op::kAvgPool:
      return kinds.contains(OpKind::kAvgPool);
    case Op::kMaxPool:
      return kinds.contains(OpKind::kMaxPool);
    case Op::kConcat:
      return kinds.contains(OpKind::kConcat);
    case Op::kSplit0:
    case Op::kSplit1:
      return kinds.contains(OpKind::kSlice);
    default:
      return true;
  }
}

// The places at which a rule applies, in groups that are alike. Places of a group share no node.
std::vector<std::vector<plan::Substitution>> Places(const Graph& graph, const DirectedRule& rule,
                                                    bool all_alike) {
  std::vector<std::vector<plan::Substitution>> places;
  std::map<std::string, size_t> by_signature;
  std::vector<std::set<int>> taken;
  std::map<std::vector<int>, std::vector<int>> order_of;
  const std::vector<Match> matches = FindMatches(graph, rule);
  const std::vector<plan::Substitution> named = Named(graph, rule, matches);
  for (size_t i = 0; i < matches.size(); ++i) {
    const Match& match = matches[i];
    // Terms of a source that are alike match in every order; one is enough.
    std::vector<int> sorted = match.nodes;
    std::sort(sorted.begin(), sorted.end());
    if (order_of.emplace(std::move(sorted), match.nodes).first->second != match.nodes) continue;
    size_t group = places.size();
    if (all_alike)
      group = by_signature.emplace(absl::StrCat(SignatureOf(graph, match), named[i].way), group)
                  .first->second;
    if (group == places.size()) {
      places.emplace_back();
      taken.emplace_back();
    }
    if (std::any_of(match.nodes.begin(), match.nodes.end(),
                    [&](int n) { return taken[group].contains(n); }))
      continue;
    taken[group].insert(match.nodes.begin(), match.nodes.end());
    places[group].push_back(named[i]);
  }
  return places;
}

struct Candidate {
  std::shared_ptr<const SearchedGraph> searched;
  int order = 0;  // in which it was found
};
struct Costlier {
  bool operator()(const Candidate& a, const Candidate& b) const {
    return std::pair(a.searched->cost, a.order) > std::pair(b.searched->cost, b.order);
  }
};

}  // namespace

std::string GraphDigest(const Graph& graph) {
  std::vector<std::string> digests(graph.values.size());
  for (size_t i = 0; i < graph.inputs.size(); ++i)
    digests[static_cast<size_t>(graph.inputs[i])] = absl::StrCat("input ", i);
  for (const auto& [v, data] : graph.constants) {
    digests[static_cast<size_t>(v)] =
        absl::StrCat("constant ", reinterpret_cast<uintptr_t>(data.bytes->data()), " ",
                     graph::ToText(data.type));
  }
  for (const Node& node : graph.nodes) {
    Sha256 digest;
    digest.Update(graph::NameOf(node.kind));
    digest.Update(graph::ExactText(node.attrs));
    for (const ValueId v : node.inputs) digest.Update(digests[static_cast<size_t>(v)] + "\n");
    digests[static_cast<size_t>(node.outputs[0])] = digest.Hex();
  }
  Sha256 all;
  for (const ValueId v : graph.outputs) all.Update(digests[static_cast<size_t>(v)] + "\n");
  return all.Hex();
}

absl::StatusOr<Graph> Substituted(const Graph& graph, const std::vector<DirectedRule>& rules,
                                  const plan::Substitution& substitution, graph::FoldMemo* memo) {
  HEDDLE_ASSIGN_OR_RETURN(const Graph applied, Replay(graph, rules, substitution));
  return graph::FoldConstants(applied, memo);
}

absl::StatusOr<SearchResult> Search(const Graph& graph, const std::vector<DirectedRule>& rules,
                                    const GraphCost& cost, graph::FoldMemo* memo,
                                    const SearchOptions& options) {
  SearchResult result;
  std::priority_queue<Candidate, std::vector<Candidate>, Costlier> open;
  std::set<std::string> seen{GraphDigest(graph)};
  int order = 0;
  const auto add = [&](SearchedGraph searched) {
    const auto place = std::upper_bound(
        result.best.begin(), result.best.end(), searched.cost,
        [](double value, const SearchedGraph& other) { return value < other.cost; });
    if (place != result.best.end() || static_cast<int>(result.best.size()) < options.results)
      result.best.insert(place, searched);
    if (static_cast<int>(result.best.size()) > options.results) result.best.pop_back();
    if (searched.cost > options.alpha * result.best[0].cost) return;
    open.push({std::make_shared<const SearchedGraph>(std::move(searched)), order++});
  };
  HEDDLE_ASSIGN_OR_RETURN(const double start, cost(graph));
  ++result.evaluations;
  add({graph, {}, start});

  while (!open.empty()) {
    const std::shared_ptr<const SearchedGraph> from = open.top().searched;
    open.pop();
    // The bound has moved since it was found.
    if (from->cost > options.alpha * result.best[0].cost) continue;
    std::set<OpKind> kinds;
    for (const Node& node : from->graph.nodes) kinds.insert(node.kind);
    for (const DirectedRule& rule : rules) {
      if (std::any_of(rule.rule.source.begin(), rule.rule.source.end(),
                      [&](const Term& term) { return !MayMatch(kinds, term); }))
        continue;
      for (const auto& places : Places(from->graph, rule, options.all_alike)) {
        SearchedGraph next{from->graph, from->substitutions, 0};
        bool changed = false;
        for (const plan::Substitution& place : places) {
          absl::StatusOr<Graph> applied = Substituted(next.graph, rules, place, memo);
          // Another place of the group may have changed what is around this one.
          if (absl::IsNotFound(applied.status())) continue;
          HEDDLE_RETURN_IF_ERROR(applied.status());
          next.graph = *std::move(applied);
          next.substitutions.push_back(place);
          changed = true;
        }
        if (!changed || !seen.insert(GraphDigest(next.graph)).second) continue;
        if (result.evaluations >= options.evaluations) return result;
        HEDDLE_ASSIGN_OR_RETURN(next.cost, cost(next.graph));
        ++result.evaluations;
        add(std::move(next));
        if (options.progress) options.progress(result.evaluations, result.best[0].cost);
      }
    }
  }
  result.exhausted = true;
  return result;
}

}  // namespace heddle::substitution
