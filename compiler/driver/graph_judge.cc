#include "compiler/driver/graph_judge.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "compiler/graph/core/graph_builder.h"
#include "compiler/graph/core/operator.h"
#include "compiler/graph/fusion/row_blocks.h"

namespace heddle::internal {
namespace {

using graph::FixedLayouts;
using graph::FusedGraph;
using graph::Graph;
using graph::Group;
using graph::Layout;
using graph::LayoutProblem;
using graph::Node;
using graph::ValueId;

// A bound is trusted as far as this: kernels may cost a little less than where they were looked at.
constexpr double kTrust = 0.98;

size_t Index(ValueId v) { return static_cast<size_t>(v); }

bool IsInjective(const Node& node) {
  return graph::Def(node.kind).fusion == graph::FusionClass::kInjective;
}

// The nodes of a group as a graph of their own.
absl::StatusOr<Graph> Alone(const FusedGraph& fused, const Group& group) {
  graph::GraphBuilder out;
  std::map<ValueId, ValueId> map;
  for (const ValueId v : group.inputs) {
    const graph::Value& value = fused.graph.values[Index(v)];
    const auto constant = fused.graph.constants.find(v);
    map[v] = constant == fused.graph.constants.end() ? out.Input(value.name, value.type)
                                                     : out.Constant(value.name, constant->second);
  }
  for (const int n : group.nodes) {
    const Node& node = fused.graph.nodes[static_cast<size_t>(n)];
    std::vector<ValueId> inputs;
    for (const ValueId v : node.inputs) inputs.push_back(map.at(v));
    HEDDLE_ASSIGN_OR_RETURN(map[node.outputs[0]],
                            out.Add(node.kind, std::move(inputs), node.attrs, node.name));
  }
  std::vector<std::pair<std::string, ValueId>> outputs;
  for (const ValueId v : group.outputs)
    outputs.emplace_back(fused.graph.values[Index(v)].name, map.at(v));
  return out.Build(outputs);
}

}  // namespace

GraphJudge::GraphJudge(const ModelOptions& options, const plan::KernelCosts& costs,
                       graph::FoldMemo* folded, graph::FuseMemo* programs, int64_t memory_bytes)
    : options_(options),
      costs_(costs),
      reuse_(options.passes.target),
      programs_(programs),
      memory_bytes_(memory_bytes),
      before_(options.passes),
      after_(options.passes) {
  bool before = true;
  for (const std::string& name : graph::PassNames()) {
    before = before && name != "layout";
    (before ? after_ : before_).disabled.insert(name);
  }
  for (graph::PassOptions* passes : {&before_, &after_}) {
    passes->memo = folded;
    passes->check = false;
    passes->observer = nullptr;
  }
}

double GraphJudge::NsOf(const FusedGraph& fused, const Group& group) {
  {
    absl::MutexLock lock(&mutex_);
    if (const auto known = ns_of_.find(group.key); known != ns_of_.end()) return known->second;
  }
  const double ns = costs_.Of(fused, group).ns;
  absl::MutexLock lock(&mutex_);
  return ns_of_.emplace(group.key, ns).first->second;
}

absl::StatusOr<double> GraphJudge::CostWith(const Graph& shaped, const FixedLayouts& layouts) {
  graph::PassOptions passes = after_;
  passes.layout.fixed = &layouts;
  passes.layout.plan = nullptr;
  HEDDLE_ASSIGN_OR_RETURN(Graph placed, graph::Place(shaped, passes));
  graph::FuseOptions fuse = options_.fuse;
  fuse.memo = programs_;
  fuse.programs = false;
  HEDDLE_ASSIGN_OR_RETURN(const FusedGraph fused, graph::Fuse(std::move(placed), fuse));
  std::vector<double> alone;
  for (const Group& group : fused.groups) alone.push_back(NsOf(fused, group));
  if (!graph::BlocksAreApart(fused)) return kNoLimit;
  if (memory_bytes_ < graph::kAnyBytes && graph::InferenceBytes(fused) > memory_bytes_)
    return kNoLimit;
  const std::vector<double> costs = reuse_.CostsNs(fused, alone);
  const std::vector<int64_t> runs = graph::RunsOfGroups(fused);
  double sum = 0;
  for (size_t g = 0; g < costs.size(); ++g) sum += costs[g] * static_cast<double>(runs[g]);
  return sum;
}

absl::StatusOr<GraphJudge::ByLayout> GraphJudge::CostsOf(const FusedGraph& fused,
                                                         const Group& group) {
  {
    absl::MutexLock lock(&mutex_);
    if (const auto known = by_kernel_.find(group.key); known != by_kernel_.end())
      return known->second;
  }
  HEDDLE_ASSIGN_OR_RETURN(const ByLayout costs, FindCosts(fused, group));
  absl::MutexLock lock(&mutex_);
  return by_kernel_.emplace(group.key, costs).first->second;
}

absl::StatusOr<GraphJudge::ByLayout> GraphJudge::FindCosts(const FusedGraph& fused,
                                                           const Group& group) {
  HEDDLE_ASSIGN_OR_RETURN(const Graph alone, Alone(fused, group));
  const std::string& anchor = plan::AnchorOf(fused.graph, group).name;
  std::set<std::string> own;
  for (const Node& node : alone.nodes) own.insert(node.name);
  constexpr int64_t kNever = LayoutProblem::kNever;
  ByLayout costs{{kNever, kNever, kNever}, kNoLimit};
  for (const Layout layout : graph::kLayouts) {
    if (layout == Layout::kChannelsBlocked && options_.passes.layout.block.value_or(0) == 0)
      continue;
    graph::LayoutPlan plan;
    graph::PassOptions passes = after_;
    passes.layout.all = layout;
    passes.layout.plan = &plan;
    HEDDLE_ASSIGN_OR_RETURN(Graph placed, graph::Place(alone, passes));
    if (layout == Layout::kChannelsBlocked &&
        std::none_of(plan.operators.begin(), plan.operators.end(),
                     [&](const auto& op) { return op.name == anchor && op.layout == layout; }))
      continue;
    // What moves the operands and the result is not part of the kernel.
    graph::FuseOptions fuse = options_.fuse;
    fuse.memo = programs_;
    fuse.programs = false;
    std::set<int> moves;
    for (size_t n = 0; n < placed.nodes.size(); ++n) {
      const Node& node = placed.nodes[n];
      if (own.contains(node.name) || !graph::Def(node.kind).OnlyMoves()) continue;
      moves.insert(static_cast<int>(n));
      for (const auto* values : {&node.inputs, &node.outputs}) {
        for (const ValueId v : *values) fuse.separate.insert(placed.values[Index(v)].name);
      }
    }
    HEDDLE_ASSIGN_OR_RETURN(const FusedGraph made, graph::Fuse(std::move(placed), fuse));
    double ns = 0, least_ns = 0;
    for (const Group& part : made.groups) {
      if (std::all_of(part.nodes.begin(), part.nodes.end(),
                      [&](int n) { return moves.contains(n); }))
        continue;
      const double alone_ns = NsOf(made, part);
      ns += alone_ns;
      least_ns += reuse_.LeastNs(made, part, alone_ns);
    }
    int64_t& cost = layout == Layout::kChannelsFirst  ? costs.alone.first_ns
                    : layout == Layout::kChannelsLast ? costs.alone.last_ns
                                                      : costs.alone.blocked_ns;
    cost = std::max<int64_t>(1, std::llround(ns));
    costs.least_ns = std::min(costs.least_ns, least_ns);
  }
  return costs;
}

absl::StatusOr<GraphJudge::Judged> GraphJudge::Judge(const Graph& graph, bool joint, double limit) {
  HEDDLE_ASSIGN_OR_RETURN(const Graph shaped, graph::Place(graph, before_));
  if (options_.passes.layout.fixed != nullptr) {
    const FixedLayouts& fixed = *options_.passes.layout.fixed;
    HEDDLE_ASSIGN_OR_RETURN(const double ns, CostWith(shaped, fixed));
    return Judged{ns, fixed};
  }
  const int64_t block = options_.passes.layout.block.value_or(0);
  std::optional<FixedLayouts> by_kernels;
  if (joint) {
    graph::FuseOptions fuse = options_.fuse;
    fuse.memo = programs_;
    fuse.programs = false;
    HEDDLE_ASSIGN_OR_RETURN(const FusedGraph first, graph::Fuse(shaped, fuse));
    std::map<std::string, Operator> costs;
    double least = 0;
    const std::vector<bool> may_reuse = reuse_.MayReuse(first);
    const std::vector<int64_t> runs_of = graph::RunsOfGroups(first);
    for (size_t g = 0; g < first.groups.size(); ++g) {
      const Group& group = first.groups[g];
      const Node& anchor = plan::AnchorOf(first.graph, group);
      // Kernels that only move or map elements may be fused with others once layouts are chosen.
      const bool counts = !IsInjective(anchor);
      const auto runs = static_cast<double>(runs_of[g]);
      if (!graph::HasChannelsLastForm(first.graph, anchor)) {
        const double ns = NsOf(first, group);
        if (counts) least += runs * (may_reuse[g] ? reuse_.LeastNs(first, group, ns) : ns);
        continue;
      }
      HEDDLE_ASSIGN_OR_RETURN(const ByLayout by_layout, CostsOf(first, group));
      const Operator& ns = by_layout.alone;
      if (counts) {
        least +=
            runs * (may_reuse[g]
                        ? by_layout.least_ns
                        : static_cast<double>(std::min({ns.first_ns, ns.last_ns, ns.blocked_ns})));
      }
      costs[anchor.name] = ns;
    }
    if (kTrust * least > limit) {
      ++bounded_;
      return Judged{kTrust * least, {}, true};
    }
    by_kernels = graph::Fixed(graph::PlanLayouts(
        shaped, graph::MeasuredLayoutCosts(std::move(costs), options_.passes.target), block));
  }
  Judged best;
  best.layouts =
      graph::Fixed(graph::PlanLayouts(shaped, graph::LayoutCosts(options_.passes.target), block));
  HEDDLE_ASSIGN_OR_RETURN(best.ns, CostWith(shaped, best.layouts));
  if (by_kernels.has_value() && *by_kernels != best.layouts) {
    HEDDLE_ASSIGN_OR_RETURN(const double ns, CostWith(shaped, *by_kernels));
    if (ns < best.ns) best = {ns, *std::move(by_kernels)};
  }
  return best;
}

}  // namespace heddle::internal
