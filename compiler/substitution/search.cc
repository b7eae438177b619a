#include "compiler/substitution/search.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <queue>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/parallel_for.h"
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

// Graphs that are made together, and graphs that are evaluated together. Large enough to keep several threads
// busy; small enough that the bound, which moves between batches, is up to date.
constexpr size_t kBatch = 16;

class Searcher {
 public:
  Searcher(const std::vector<DirectedRule>& rules, const GraphCost& cost, graph::FoldMemo* memo,
           const SearchOptions& options)
      : rules_(rules),
        cost_(cost),
        memo_(memo),
        options_(options),
        deadline_(absl::Now() + options.time_limit) {}

  absl::StatusOr<SearchResult> Run(const Graph& graph) {
    std::vector<SearchedGraph> first{{graph, {}, 0}};
    first.insert(first.end(), options_.also.begin(), options_.also.end());
    std::erase_if(first, [&](const SearchedGraph& searched) {
      return !seen_.insert(GraphDigest(searched.graph)).second;
    });
    HEDDLE_RETURN_IF_ERROR(Evaluate(std::move(first)));
    while (!open_.empty() && !Ended()) {
      const std::shared_ptr<const SearchedGraph> from = open_.top().searched;
      open_.pop();
      // The bound has moved since it was found.
      if (from->cost > Limit()) continue;
      HEDDLE_RETURN_IF_ERROR(Expand(*from));
    }
    result_.exhausted = open_.empty() && !ended_;
    return std::move(result_);
  }

 private:
  // A group of places at which a rule applies.
  using Step = std::vector<plan::Substitution>;
  struct Made {
    std::optional<SearchedGraph> searched;  // nullopt: the step does not apply
    std::string digest;
  };

  double Limit() const {
    return result_.best.empty() ? std::numeric_limits<double>::infinity()
                                : options_.alpha * result_.best[0].cost;
  }

  bool Ended() {
    if (result_.evaluations >= options_.evaluations) ended_ = true;
    if (absl::Now() > deadline_) ended_ = result_.timed_out = true;
    return ended_;
  }

  // Calls f for each index, on all threads. The first error in the order of the indices.
  absl::Status ForEach(size_t n, const std::function<absl::Status(size_t)>& f) const {
    std::vector<absl::Status> statuses(n);
    ParallelFor(static_cast<int>(n), options_.threads,
                [&](int i) { statuses[static_cast<size_t>(i)] = f(static_cast<size_t>(i)); });
    for (const absl::Status& status : statuses) HEDDLE_RETURN_IF_ERROR(status);
    return absl::OkStatus();
  }

  absl::Status Expand(const SearchedGraph& from) {
    const std::vector<Step> steps = StepsOf(from.graph);
    for (size_t begin = 0; begin < steps.size() && !Ended(); begin += kBatch) {
      const size_t n = std::min(kBatch, steps.size() - begin);
      std::vector<Made> made(n);
      HEDDLE_RETURN_IF_ERROR(
          ForEach(n, [&](size_t i) { return Take(from, steps[begin + i], &made[i]); }));
      std::vector<SearchedGraph> fresh;
      for (Made& m : made) {
        if (m.searched.has_value() && seen_.insert(m.digest).second)
          fresh.push_back(*std::move(m.searched));
      }
      HEDDLE_RETURN_IF_ERROR(Evaluate(std::move(fresh)));
    }
    return absl::OkStatus();
  }

  // In the order of the rules.
  std::vector<Step> StepsOf(const Graph& graph) const {
    std::set<OpKind> kinds;
    for (const Node& node : graph.nodes) kinds.insert(node.kind);
    std::vector<std::vector<Step>> by_rule(rules_.size());
    ParallelFor(static_cast<int>(rules_.size()), options_.threads, [&](int r) {
      const DirectedRule& rule = rules_[static_cast<size_t>(r)];
      if (std::all_of(rule.rule.source.begin(), rule.rule.source.end(),
                      [&](const Term& term) { return MayMatch(kinds, term); }))
        by_rule[static_cast<size_t>(r)] = Places(graph, rule, options_.all_alike);
    });
    std::vector<Step> steps;
    for (std::vector<Step>& places : by_rule)
      std::move(places.begin(), places.end(), std::back_inserter(steps));
    return steps;
  }

  absl::Status Take(const SearchedGraph& from, const Step& step, Made* made) const {
    SearchedGraph next{from.graph, from.substitutions, 0};
    bool changed = false;
    for (const plan::Substitution& place : step) {
      const absl::Status applied = Substitute(rules_, place, memo_, &next.graph);
      // Another place of the step may have changed what is around this one.
      if (absl::IsNotFound(applied)) continue;
      HEDDLE_RETURN_IF_ERROR(applied);
      next.substitutions.push_back(place);
      changed = true;
    }
    if (!changed) return absl::OkStatus();
    made->digest = GraphDigest(next.graph);
    made->searched = std::move(next);
    return absl::OkStatus();
  }

  absl::Status Evaluate(std::vector<SearchedGraph> graphs) {
    const auto left = static_cast<size_t>(std::max(1, options_.evaluations) - result_.evaluations);
    if (graphs.size() > left) {
      graphs.resize(left);
      ended_ = true;
    }
    const double limit = Limit();
    HEDDLE_RETURN_IF_ERROR(ForEach(graphs.size(), [&](size_t i) -> absl::Status {
      HEDDLE_ASSIGN_OR_RETURN(graphs[i].cost, cost_(graphs[i].graph, limit));
      return absl::OkStatus();
    }));
    for (SearchedGraph& searched : graphs) {
      Add(std::move(searched));
      ++result_.evaluations;
      if (options_.progress) options_.progress(result_.evaluations, result_.best[0].cost);
    }
    return absl::OkStatus();
  }

  void Add(SearchedGraph searched) {
    if (searched.cost > Limit()) return;
    std::vector<SearchedGraph>& best = result_.best;
    const auto place = std::upper_bound(
        best.begin(), best.end(), searched.cost,
        [](double value, const SearchedGraph& other) { return value < other.cost; });
    if (place != best.end() || static_cast<int>(best.size()) < options_.results)
      best.insert(place, searched);
    if (static_cast<int>(best.size()) > options_.results) best.pop_back();
    open_.push({std::make_shared<const SearchedGraph>(std::move(searched)), order_++});
  }

  const std::vector<DirectedRule>& rules_;
  const GraphCost& cost_;
  graph::FoldMemo* memo_;
  const SearchOptions& options_;
  const absl::Time deadline_;
  std::priority_queue<Candidate, std::vector<Candidate>, Costlier> open_;
  std::set<std::string> seen_;  // digests
  int order_ = 0;
  bool ended_ = false;
  SearchResult result_;
};

constexpr size_t kSmallConstant = 1024;  // bytes

}  // namespace

std::string GraphDigest(const Graph& graph) {
  std::vector<std::string> digests(graph.values.size());
  for (size_t i = 0; i < graph.inputs.size(); ++i)
    digests[static_cast<size_t>(graph.inputs[i])] = absl::StrCat("input ", i);
  for (const auto& [v, data] : graph.constants) {
    // Large constants are told apart by their place: reading all weights for each graph would take too long.
    const std::string_view bytes = *data.bytes;
    const std::string what = bytes.size() <= kSmallConstant
                                 ? std::string(bytes)
                                 : absl::StrCat("at ", reinterpret_cast<uintptr_t>(bytes.data()));
    digests[static_cast<size_t>(v)] =
        absl::StrCat("constant ", graph::ToText(data.type), " ", what);
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

absl::StatusOr<SearchResult> Search(const Graph& graph, const std::vector<DirectedRule>& rules,
                                    const GraphCost& cost, graph::FoldMemo* memo,
                                    const SearchOptions& options) {
  return Searcher(rules, cost, memo, options).Run(graph);
}

}  // namespace heddle::substitution
