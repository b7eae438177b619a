#include "compiler/substitution/apply_rules.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/fatal.h"
#include "base/status_macros.h"
#include "compiler/graph/core/graph_builder.h"
#include "compiler/graph/core/operator.h"
#include "compiler/substitution/match.h"
#include "compiler/substitution/rule_file.h"

namespace heddle::substitution {
namespace {

using graph::Graph;
using graph::Node;
using graph::OpFamily;
using graph::OpKind;
using graph::ValueId;

// In the order in which they are tried.
constexpr std::string_view kRules[] = {
    "max_pool[k,s](concat[1](x, y)) => concat[1](max_pool[k,s](x), max_pool[k,s](y))",
    "avg_pool[k,s](concat[1](x, y)) => concat[1](avg_pool[k,s](x), avg_pool[k,s](y))",
    "conv[s](concat[1](x, y), z) => add(conv[s](x, split0[1](z)), conv[s](y, split1[1](z)))",
};

const std::vector<DirectedRule>& Rules() {
  static const auto* const kFound = [] {
    auto* found = new std::vector<DirectedRule>;
    const std::vector<DirectedRule> all = Applicable(ShippedRules().rules);
    for (const std::string_view text : kRules) {
      const auto rule = std::find_if(all.begin(), all.end(),
                                     [&](const DirectedRule& r) { return ToText(r.rule) == text; });
      if (rule == all.end()) Fatal(absl::StrCat("no rule ", std::string(text)));
      found->push_back(*rule);
    }
    return found;
  }();
  return *kFound;
}

// The nodes of a match are the reader and the concatenation.
class Guard {
 public:
  explicit Guard(const Graph& graph)
      : graph_(graph), uses_(graph::UseCounts(graph)), producers_(graph::Producers(graph)) {}

  bool Gains(const Match& match) const {
    const Node& reader = graph_.nodes[static_cast<size_t>(match.nodes[0])];
    const Node& concat = graph_.nodes[static_cast<size_t>(match.nodes[1])];
    const ValueId joined = concat.outputs[0];
    if (uses_[Index(joined)] != 1 || Elements(reader.outputs[0]) >= Elements(joined)) return false;
    if (graph::Def(reader.kind).family != OpFamily::kConvolution) return true;
    return graph_.constants.contains(reader.inputs[1]) &&
           std::none_of(concat.inputs.begin(), concat.inputs.end(),
                        [&](ValueId v) { return IsConcat(v); });
  }

 private:
  static size_t Index(ValueId v) { return static_cast<size_t>(v); }
  int64_t Elements(ValueId v) const { return graph::NumElements(graph_.values[Index(v)].type); }
  bool IsConcat(ValueId v) const {
    const int n = producers_[Index(v)];
    return n >= 0 && graph_.nodes[static_cast<size_t>(n)].kind == OpKind::kConcat;
  }

  const Graph& graph_;
  std::vector<int> uses_, producers_;
};

}  // namespace

absl::StatusOr<Graph> ApplyRules(const Graph& graph, graph::FoldMemo* memo) {
  if (std::none_of(graph.nodes.begin(), graph.nodes.end(),
                   [](const Node& node) { return node.kind == OpKind::kConcat; }))
    return graph;
  Graph current = graph;
  bool changed = false;
  for (const DirectedRule& rule : Rules()) {
    for (bool again = true; again;) {
      again = false;
      const Guard guard(current);
      for (const Match& match : FindMatches(current, rule)) {
        if (!guard.Gains(match)) continue;
        absl::StatusOr<Graph> applied = Apply(current, rule, match);
        if (absl::IsFailedPrecondition(applied.status())) continue;
        HEDDLE_RETURN_IF_ERROR(applied.status());
        current = *std::move(applied);
        changed = again = true;
        break;
      }
    }
  }
  return changed ? graph::FoldConstants(current, memo) : current;
}

}  // namespace heddle::substitution
