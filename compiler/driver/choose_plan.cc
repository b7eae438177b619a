#include "compiler/driver/choose_plan.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/status_macros.h"
#include "compiler/driver/check_substitution.h"
#include "compiler/driver/graph_judge.h"
#include "compiler/driver/import_model.h"
#include "compiler/driver/model_layout.h"
#include "compiler/graph/core/operator.h"
#include "compiler/graph/fusion/memory_plan.h"
#include "compiler/graph/fusion/row_blocks.h"
#include "compiler/plan/reuse.h"
#include "compiler/substitution/rule_file.h"
#include "compiler/substitution/search.h"

namespace heddle {
namespace {

using graph::Layout;
using graph::LayoutProblem;

// A change that gains less than this share is none.
constexpr double kWorthwhile = 0.002;
// A kernel is cut only if its parts cost less than this share of the whole.
constexpr double kCut = 0.95;
// Contenders whose graph is another one.
constexpr int kSubstituted = 3;
// Standard deviation of what the calls of a kernel save in a model, as a share of it.
constexpr double kSavedSpread = 0.5;

class Chooser {
 public:
  static absl::StatusOr<std::unique_ptr<Chooser>> Make(
      std::string_view onnx, const ModelOptions& options, const Target& target,
      const std::map<std::string, double>& measured_ns, const plan::Experience& experience,
      int64_t memory_bytes) {
    HEDDLE_ASSIGN_OR_RETURN(ModelOptions chosen, ForTarget(options, target));
    HEDDLE_ASSIGN_OR_RETURN(const graph::Graph imported, ImportModel(onnx, options.import));
    HEDDLE_ASSIGN_OR_RETURN(graph::Graph simple, graph::Simplify(imported, chosen.passes));
    return absl::WrapUnique(
        new Chooser(std::move(simple), std::move(chosen), measured_ns, experience, memory_bytes));
  }

  absl::StatusOr<PlanChoice> Choose(const PlanSearch& search) {
    HEDDLE_RETURN_IF_ERROR(AddEstimated());
    HEDDLE_RETURN_IF_ERROR(AddUniform());
    HEDDLE_RETURN_IF_ERROR(AddUnfused());
    HEDDLE_RETURN_IF_ERROR(AddByColumns());
    HEDDLE_RETURN_IF_ERROR(AddForests());
    for (const Made& made : made_) costs_.Learn(made.fused);
    for (size_t i = 0; i < made_.size(); ++i) choice_.contenders[i].cost = CostOf(made_[i].fused);
    choice_.error = costs_.Error();
    choice_.experience = costs_.ErrorOfExperience();
    choice_.learned = costs_.learned();
    if (search.mode == PlanSearch::Mode::kOff) {
      choice_.contenders.resize(1);
    } else if (choice_.error.kernels > 0) {
      HEDDLE_RETURN_IF_ERROR(AddForestsByBlock());
      options_.passes.forests.fixed = made_[Fastest()].plan.forests;
      HEDDLE_RETURN_IF_ERROR(AddBestLayouts());
      HEDDLE_RETURN_IF_ERROR(AddCuts());
      HEDDLE_RETURN_IF_ERROR(AddColumns());
      HEDDLE_RETURN_IF_ERROR(AddImproved(search));
      HEDDLE_RETURN_IF_ERROR(AddSubstituted(search));
      if (search.tuned.has_value()) {
        HEDDLE_ASSIGN_OR_RETURN(tuned_, AddGiven("the job's until now", *search.tuned));
        for (const plan::Plan& plan : search.runners_up)
          HEDDLE_RETURN_IF_ERROR(AddGiven("the runner-up until now", plan).status());
      }
      Settle(search);
    }
    return std::move(choice_);
  }

 private:
  struct Made {
    graph::FusedGraph fused;
    graph::LayoutPlan layouts;
    plan::Plan plan;
  };
  // Names of values by which fusion differs from what it does by itself (graph/fusion/fuse.h).
  struct Changes {
    std::set<std::string> separate, columns = {};
  };
  static Changes ChangesOf(const Made& made) { return {made.plan.separate, made.plan.columns}; }

  Chooser(graph::Graph simple, ModelOptions options,
          const std::map<std::string, double>& measured_ns, const plan::Experience& experience,
          int64_t memory_bytes)
      : simple_(std::move(simple)),
        options_(std::move(options)),
        costs_(options_.passes.target, measured_ns, experience),
        reuse_(options_.passes.target),
        memory_bytes_(memory_bytes) {}

  absl::StatusOr<Made> Make(const std::optional<graph::FixedLayouts>& layouts,
                            const Changes& changes, std::optional<Layout> all = std::nullopt,
                            const graph::LayoutCosts* costs = nullptr,
                            const substitution::SearchedGraph* substituted = nullptr) {
    Made made;
    if (substituted != nullptr) made.plan.substitutions = substituted->substitutions;
    graph::PassOptions passes = options_.passes;
    passes.memo = &folded_;
    passes.layout.plan = &made.layouts;
    passes.forests.plan = &made.plan.forests;
    if (layouts.has_value()) passes.layout.fixed = &*layouts;
    if (all.has_value()) passes.layout.all = all;
    if (costs != nullptr) passes.layout.costs = costs;
    HEDDLE_ASSIGN_OR_RETURN(
        graph::Graph placed,
        graph::Place(substituted != nullptr ? substituted->graph : simple_, passes));
    graph::FuseOptions fuse = options_.fuse;
    fuse.separate.insert(changes.separate.begin(), changes.separate.end());
    fuse.columns.insert(changes.columns.begin(), changes.columns.end());
    fuse.memo = &programs_;
    HEDDLE_ASSIGN_OR_RETURN(made.fused, graph::Fuse(std::move(placed), fuse));
    made.plan.layouts = graph::Fixed(made.layouts);
    made.plan.separate = std::move(fuse.separate);
    made.plan.columns = std::move(fuse.columns);
    return made;
  }

  // Adds a contender unless its plan is there already. Returns the place of the contender with that plan; nullopt: it needs
  // too much memory. The first contender may.
  std::optional<size_t> Add(std::string name, Made made) {
    for (size_t i = 0; i < choice_.contenders.size(); ++i) {
      if (choice_.contenders[i].plan == made.plan) return i;
    }
    const PlanCost cost = CostOf(made.fused);
    const bool fits = cost.memory_bytes <= memory_bytes_;
    if (!choice_.contenders.empty() && !fits) {
      choice_.refused.push_back(absl::StrCat(name, " needs ", cost.memory_bytes >> 10,
                                             " KiB of memory, and may have ", memory_bytes_ >> 10));
      return std::nullopt;
    }
    choice_.contenders.push_back(
        {std::move(name), made.plan, cost, graph::ExtractTasks(made.fused), fits});
    made_.push_back(std::move(made));
    return made_.size() - 1;
  }

  // By which plans are compared: one that needs too much memory costs infinitely much.
  double NsOf(const PlanCost& cost) const {
    return cost.memory_bytes > memory_bytes_ ? std::numeric_limits<double>::infinity() : cost.ns;
  }
  double NsOf(const Made& made) const { return NsOf(CostOf(made.fused)); }

  PlanCost CostOf(const graph::FusedGraph& fused) const {
    PlanCost sum;
    double variance = 0;
    // Calls of one kernel are wrong together.
    std::map<std::string, double> unknown;
    std::vector<double> alone;
    std::vector<double> runs;
    for (const int64_t of_group : graph::RunsOfGroups(fused))
      runs.push_back(static_cast<double>(of_group));
    for (const graph::Group& group : fused.groups) {
      const plan::KernelCost cost = costs_.Of(fused, group);
      if (cost.spread > 0) unknown[group.key] += cost.ns * cost.spread * runs[alone.size()];
      alone.push_back(cost.ns);
      ++sum.calls;
      sum.measured += cost.source == plan::KernelCost::Source::kRecord;
    }
    for (const auto& [key, spread] : unknown) variance += spread * spread;
    sum.spread_ns = std::sqrt(variance);
    sum.memory_bytes = graph::InferenceBytes(fused);
    const std::vector<double> costs = reuse_.CostsNs(fused, alone);
    for (size_t i = 0; i < costs.size(); ++i) {
      sum.ns += costs[i] * runs[i];
      if (costs[i] < alone[i]) sum.saved_ns[fused.groups[i].key] += (alone[i] - costs[i]) * runs[i];
    }
    return sum;
  }

  // What the calls of a graph cost in it, in the order of its groups.
  std::vector<double> CostsNs(const graph::FusedGraph& fused) const {
    std::vector<double> alone;
    for (const graph::Group& group : fused.groups) alone.push_back(costs_.Of(fused, group).ns);
    return reuse_.CostsNs(fused, alone);
  }

  absl::Status AddEstimated() {
    HEDDLE_ASSIGN_OR_RETURN(Made made, Make(std::nullopt, {}));
    Add("estimated", std::move(made));
    return absl::OkStatus();
  }

  absl::Status AddForests() {
    if (made_.front().plan.forests.empty()) return absl::OkStatus();
    for (const graph::ForestForm form : graph::kForestForms) {
      options_.passes.forests.all = form;
      HEDDLE_ASSIGN_OR_RETURN(Made made, Make(std::nullopt, {}));
      forests_.push_back(made);
      Add(absl::StrCat("forests: ", std::string(graph::ForestFormName(form))), std::move(made));
    }
    options_.passes.forests.all.reset();
    return absl::OkStatus();
  }

  // Adds a contender in which each block of rows has the form of forests that is cheapest for it.
  absl::Status AddForestsByBlock() {
    const size_t blocks = simple_.tables.blocks.size();
    if (blocks == 0 || forests_.empty()) return absl::OkStatus();
    std::vector<double> least(blocks, std::numeric_limits<double>::infinity());
    std::vector<graph::ForestForms> forms(blocks);
    for (const Made& made : forests_) {
      const std::vector<graph::BlockGroups> groups = graph::GroupsByBlock(made.fused);
      const std::vector<double> costs = CostsNs(made.fused);
      for (size_t b = 0; b < blocks; ++b) {
        double sum = 0;
        graph::ForestForms found;
        for (const int g : groups[b].groups) {
          const graph::Group& group = made.fused.groups[static_cast<size_t>(g)];
          sum += costs[static_cast<size_t>(g)];
          const auto forest = made.plan.forests.find(plan::AnchorOf(made.fused.graph, group).name);
          if (forest != made.plan.forests.end()) found.insert(*forest);
        }
        if (sum >= least[b]) continue;
        least[b] = sum;
        forms[b] = std::move(found);
      }
    }
    for (const graph::ForestForms& of_block : forms)
      options_.passes.forests.fixed.insert(of_block.begin(), of_block.end());
    HEDDLE_ASSIGN_OR_RETURN(Made made, Make(std::nullopt, {}));
    Add("forests: the best of each block of rows", std::move(made));
    return absl::OkStatus();
  }

  absl::Status AddUniform() {
    const bool open = options_.passes.layout.fixed == nullptr;
    for (const Layout layout : graph::kLayouts) {
      if (!open || (layout == Layout::kChannelsBlocked && options_.passes.layout.block == 0))
        continue;
      HEDDLE_ASSIGN_OR_RETURN(Made made, Make(std::nullopt, {}, layout));
      RememberAnchors(made, layout);
      Add(absl::StrCat(std::string(graph::LayoutName(layout)), " everywhere"), std::move(made));
    }
    return absl::OkStatus();
  }

  // Which kernel is built around a node in a layout.
  void RememberAnchors(const Made& made, Layout layout) {
    uniform_.push_back({layout, made.fused});
  }

  // The values at which a kernel can be cut: what its main operator gives, and what it reads.
  static void AddCutsOf(const graph::FusedGraph& fused, const graph::Group& group,
                        std::set<std::string>* separate) {
    if (group.nodes.size() < 2) return;
    const graph::Node& anchor = plan::AnchorOf(fused.graph, group);
    std::set<graph::ValueId> inside;
    for (int n : group.nodes) {
      const graph::Node& node = fused.graph.nodes[static_cast<size_t>(n)];
      inside.insert(node.outputs.begin(), node.outputs.end());
    }
    const auto add = [&](graph::ValueId v) {
      if (inside.contains(v)) separate->insert(fused.graph.values[static_cast<size_t>(v)].name);
    };
    for (graph::ValueId v : anchor.inputs) add(v);
    if (group.nodes.back() != static_cast<int>(&anchor - fused.graph.nodes.data())) {
      for (graph::ValueId v : anchor.outputs) add(v);
    }
  }

  absl::Status AddUnfused() {
    if (!options_.fuse.enabled) return absl::OkStatus();
    const Made& base = made_.front();
    std::set<std::string> separate;
    for (const graph::Group& group : base.fused.groups) AddCutsOf(base.fused, group, &separate);
    HEDDLE_ASSIGN_OR_RETURN(Made made, Make(base.plan.layouts, {separate, base.plan.columns}));
    Add("estimated, unfused", std::move(made));
    return absl::OkStatus();
  }

  // The first, with all transposes in the products that read them, as far as they can be.
  absl::Status AddByColumns() {
    const Made& base = made_.front();
    const std::set<std::string> all = graph::MayBeColumns(base.fused.graph);
    if (!options_.fuse.enabled || all.empty()) return absl::OkStatus();
    HEDDLE_ASSIGN_OR_RETURN(Made made, Make(base.plan.layouts, {base.plan.separate, all}));
    Add("estimated, matrices by columns", std::move(made));
    return absl::OkStatus();
  }

  // Costs of operators in each layout: those of the kernels that are built around them in uniform graphs. Where their
  // constants come from in a mixed graph, a sum over operators cannot say; it is taken to be as in the uniform one.
  graph::MeasuredLayoutCosts LayoutCostsOf(
      const std::vector<std::pair<Layout, graph::FusedGraph>>& uniform) const {
    std::map<std::string, LayoutProblem::Operator> ns_by_node;
    std::map<std::string, std::string> last_key;
    constexpr int64_t kNever = LayoutProblem::kNever;
    for (const auto& [layout, fused] : uniform) {
      const std::vector<double> costs = CostsNs(fused);
      for (size_t i = 0; i < costs.size(); ++i) {
        const graph::Group& group = fused.groups[i];
        const graph::Node& anchor = plan::AnchorOf(fused.graph, group);
        LayoutProblem::Operator& op =
            ns_by_node.try_emplace(anchor.name, LayoutProblem::Operator{kNever, kNever, kNever})
                .first->second;
        const auto ns = std::max<int64_t>(1, std::llround(costs[i]));
        switch (layout) {
          case Layout::kChannelsFirst:
            op.first_ns = ns;
            break;
          case Layout::kChannelsLast:
            op.last_ns = ns;
            last_key[anchor.name] = group.key;
            break;
          // Nodes without a blocked form have channels last here.
          case Layout::kChannelsBlocked:
            if (last_key[anchor.name] != group.key) op.blocked_ns = ns;
            break;
        }
      }
    }
    return graph::MeasuredLayoutCosts(std::move(ns_by_node), options_.passes.target);
  }

  absl::Status AddBestLayouts() {
    if (uniform_.empty()) return absl::OkStatus();
    const graph::MeasuredLayoutCosts costs = LayoutCostsOf(uniform_);
    HEDDLE_ASSIGN_OR_RETURN(Made made, Make(std::nullopt, {}, std::nullopt, &costs));
    choice_.layouts = Add("layouts by costs of kernels", std::move(made));
    return absl::OkStatus();
  }

  // A graph with the layouts that cost least: those that the estimates choose, one for all, those that the costs
  // of its kernels choose, and `judged`.
  absl::StatusOr<Made> WithBestLayouts(const substitution::SearchedGraph& graph,
                                       const graph::FixedLayouts& judged) {
    HEDDLE_ASSIGN_OR_RETURN(Made best, Make(std::nullopt, {}, std::nullopt, nullptr, &graph));
    if (options_.passes.layout.fixed != nullptr) return best;
    const auto keep = [&](Made made) {
      if (NsOf(made) < NsOf(best)) best = std::move(made);
    };
    std::vector<std::pair<Layout, graph::FusedGraph>> uniform;
    for (const Layout layout : graph::kLayouts) {
      if (layout == Layout::kChannelsBlocked && options_.passes.layout.block == 0) continue;
      HEDDLE_ASSIGN_OR_RETURN(Made made, Make(std::nullopt, {}, layout, nullptr, &graph));
      uniform.emplace_back(layout, made.fused);
      keep(std::move(made));
    }
    const graph::MeasuredLayoutCosts costs = LayoutCostsOf(uniform);
    HEDDLE_ASSIGN_OR_RETURN(Made made, Make(std::nullopt, {}, std::nullopt, &costs, &graph));
    keep(std::move(made));
    HEDDLE_ASSIGN_OR_RETURN(made, Make(judged, {}, std::nullopt, nullptr, &graph));
    keep(std::move(made));
    return best;
  }

  size_t Fastest() const {
    size_t best = 0;
    for (size_t i = 1; i < choice_.contenders.size(); ++i) {
      if (NsOf(choice_.contenders[i].cost) < NsOf(choice_.contenders[best].cost)) best = i;
    }
    return best;
  }

  absl::Status AddCuts() {
    HEDDLE_ASSIGN_OR_RETURN(std::optional<Made> made, WithCuts(made_[Fastest()], nullptr));
    if (made.has_value()) Add("cut where parts cost less", *std::move(made));
    return absl::OkStatus();
  }

  // The same graph and layouts, with each kernel cut whose parts cost less; nullopt: there is none.
  absl::StatusOr<std::optional<Made>> WithCuts(const Made& whole,
                                               const substitution::SearchedGraph* graph) {
    if (!options_.fuse.enabled) return std::nullopt;
    std::set<std::string> all;
    for (const graph::Group& group : whole.fused.groups) AddCutsOf(whole.fused, group, &all);
    HEDDLE_ASSIGN_OR_RETURN(const Made parts, Make(whole.plan.layouts, {all, whole.plan.columns},
                                                   std::nullopt, nullptr, graph));
    const std::vector<Both> costs = Compare(whole.fused, parts.fused);
    std::set<std::string> separate = whole.plan.separate;
    for (size_t k = 0; k < costs.size(); ++k) {
      if (costs[k].other_ns < kCut * costs[k].ns)
        AddCutsOf(whole.fused, whole.fused.groups[k], &separate);
    }
    if (separate == whole.plan.separate) return std::nullopt;
    HEDDLE_ASSIGN_OR_RETURN(Made made, Make(whole.plan.layouts, {separate, whole.plan.columns},
                                            std::nullopt, nullptr, graph));
    return made;
  }

  // What a kernel costs in two ways to fuse a graph. What is in one kernel here may be in several there, and the
  // other way round, so this is the sum of all kernels that have to do with each other.
  struct Both {
    double ns = 0, other_ns = 0;
  };
  // For each kernel of `fused`. The graphs have the same nodes.
  std::vector<Both> Compare(const graph::FusedGraph& fused, const graph::FusedGraph& other) const {
    const size_t kernels = fused.groups.size(), nodes = fused.graph.nodes.size();
    // Sets of nodes that share a kernel, here or there. A node that only makes a view is in none.
    std::vector<size_t> set_of(nodes);
    std::iota(set_of.begin(), set_of.end(), size_t{0});
    const auto find = [&](size_t n) {
      while (set_of[n] != n) n = set_of[n] = set_of[set_of[n]];
      return n;
    };
    const auto first_of = [](const graph::Group& group) {
      return static_cast<size_t>(group.nodes.front());
    };
    for (const graph::FusedGraph* graph : {&fused, &other}) {
      for (const graph::Group& group : graph->groups) {
        for (int n : group.nodes) set_of[find(static_cast<size_t>(n))] = find(first_of(group));
      }
    }
    std::vector<Both> sums(nodes);
    const std::vector<double> ns = CostsNs(fused), other_ns = CostsNs(other);
    for (size_t k = 0; k < kernels; ++k) sums[find(first_of(fused.groups[k]))].ns += ns[k];
    for (size_t k = 0; k < other_ns.size(); ++k)
      sums[find(first_of(other.groups[k]))].other_ns += other_ns[k];
    std::vector<Both> costs;
    for (const graph::Group& group : fused.groups) costs.push_back(sums[find(first_of(group))]);
    return costs;
  }

  absl::Status AddColumns() {
    HEDDLE_ASSIGN_OR_RETURN(std::optional<Made> made, WithColumns(made_[Fastest()], nullptr));
    if (made.has_value()) Add("matrices by columns where that costs less", *std::move(made));
    return absl::OkStatus();
  }

  // The same graph and layouts, with each transpose in the product that reads it where both together cost less so;
  // nullopt: there is none.
  absl::StatusOr<std::optional<Made>> WithColumns(const Made& rows,
                                                  const substitution::SearchedGraph* graph) {
    const std::set<std::string> all = graph::MayBeColumns(rows.fused.graph);
    if (!options_.fuse.enabled || all.empty()) return std::nullopt;
    HEDDLE_ASSIGN_OR_RETURN(const Made joined, Make(rows.plan.layouts, {rows.plan.separate, all},
                                                    std::nullopt, nullptr, graph));
    const std::vector<Both> costs = Compare(joined.fused, rows.fused);
    std::set<std::string> columns;
    for (size_t k = 0; k < costs.size(); ++k) {
      if (costs[k].ns >= costs[k].other_ns) continue;
      for (int n : joined.fused.groups[k].nodes) {
        const graph::Node& node = joined.fused.graph.nodes[static_cast<size_t>(n)];
        const std::string& name =
            joined.fused.graph.values[static_cast<size_t>(node.outputs[0])].name;
        if (all.contains(name)) columns.insert(name);
      }
    }
    if (columns.empty()) return std::nullopt;
    HEDDLE_ASSIGN_OR_RETURN(Made made, Make(rows.plan.layouts, {rows.plan.separate, columns},
                                            std::nullopt, nullptr, graph));
    return made;
  }

  absl::Status AddImproved(const PlanSearch& search) {
    const size_t start = Fastest();
    HEDDLE_ASSIGN_OR_RETURN(Made best, Make(made_[start].plan.layouts, ChangesOf(made_[start])));
    double best_ns = NsOf(best);
    // Nodes with a choice, costliest first.
    std::vector<const graph::LayoutPlan::Operator*> nodes;
    const graph::LayoutPlan layouts = best.layouts;
    for (const auto& op : layouts.operators) {
      if (op.free) nodes.push_back(&op);
    }
    const auto cost = [](const graph::LayoutPlan::Operator* op) {
      return std::min({op->cost.ns.first_ns, op->cost.ns.last_ns, op->cost.ns.blocked_ns});
    };
    std::stable_sort(nodes.begin(), nodes.end(),
                     [&](const auto* a, const auto* b) { return cost(a) > cost(b); });
    int left = search.evaluations;
    bool improved = false;
    for (const auto* op : nodes) {
      for (const Layout layout : graph::kLayouts) {
        const auto& now = best.plan.layouts->of;
        const auto found = now.find(op->name);
        const Layout current = found == now.end() ? Layout::kChannelsFirst : found->second;
        if (layout == current || op->cost.ns.Cost(layout) >= LayoutProblem::kNever) continue;
        if (left-- <= 0) break;
        graph::FixedLayouts changed = *best.plan.layouts;
        changed.of[op->name] = layout;
        HEDDLE_ASSIGN_OR_RETURN(Made made, Make(changed, ChangesOf(best)));
        const double ns = NsOf(made);
        if (ns >= best_ns * (1 - kWorthwhile)) continue;
        best = std::move(made);
        best_ns = ns;
        improved = true;
      }
    }
    if (improved) Add("layouts changed one by one", std::move(best));
    return absl::OkStatus();
  }

  absl::Status AddSubstituted(const PlanSearch& search) {
    if (search.graphs <= 1) return absl::OkStatus();
    const auto rules = substitution::Applicable(substitution::ShippedRules().rules);
    internal::GraphJudge judge(options_, costs_, &folded_, &programs_, memory_bytes_);
    const absl::Time deadline = absl::Now() + search.time_limit;
    std::vector<substitution::SearchedGraph> found;
    double least = 0;  // of the first search
    for (const bool joint : {false, true}) {
      if (joint && search.mode != PlanSearch::Mode::kJoint) break;
      const auto cost = [&](const graph::Graph& graph, double limit) -> absl::StatusOr<double> {
        HEDDLE_ASSIGN_OR_RETURN(const auto judged, judge.Judge(graph, joint, limit));
        return judged.ns;
      };
      substitution::SearchOptions options;
      options.evaluations = search.graphs;
      options.results = kSubstituted;
      options.threads = search.threads;
      options.also = found;
      options.time_limit = deadline - absl::Now();
      options.progress = [&](int graph, double best_ns) {
        // The second search begins with the given graph again.
        if (!joint) least = best_ns;
        if (search.progress) search.progress(choice_.graphs + graph, std::min(least, best_ns));
      };
      HEDDLE_ASSIGN_OR_RETURN(const substitution::SearchResult result,
                              substitution::Search(simple_, rules, cost, &folded_, options));
      choice_.graphs += result.evaluations;
      choice_.timed_out = choice_.timed_out || result.timed_out;
      found.insert(found.end(), result.best.begin(), result.best.end());
    }
    choice_.bounded = judge.bounded();
    std::vector<Made> made;
    std::set<std::string> checked;
    for (const substitution::SearchedGraph& graph : found) {
      if (graph.substitutions.empty()) continue;
      // A graph that computes something else is no contender.
      const absl::Status same =
          SubstitutedAndChecked(simple_, rules, graph.substitutions, &folded_, &checked).status();
      if (!same.ok()) {
        choice_.refused.emplace_back(same.message());
        continue;
      }
      HEDDLE_ASSIGN_OR_RETURN(const auto judged, judge.Judge(graph.graph, true));
      HEDDLE_ASSIGN_OR_RETURN(Made best, WithBestLayouts(graph, judged.layouts));
      const auto keep = [&](std::optional<Made> other) {
        if (other.has_value() && NsOf(*other) < NsOf(best)) best = *std::move(other);
      };
      HEDDLE_ASSIGN_OR_RETURN(std::optional<Made> other, WithCuts(best, &graph));
      keep(std::move(other));
      HEDDLE_ASSIGN_OR_RETURN(other, WithColumns(best, &graph));
      keep(std::move(other));
      made.push_back(std::move(best));
    }
    std::stable_sort(made.begin(), made.end(),
                     [&](const Made& a, const Made& b) { return NsOf(a) < NsOf(b); });
    const size_t others = choice_.contenders.size();
    for (Made& m : made) {
      const size_t number = choice_.contenders.size() - others + 1;
      if (number > kSubstituted) break;
      Add(absl::StrCat("substituted ", number), std::move(m));
    }
    return absl::OkStatus();
  }

  // The place of the plan; nullopt: it is refused.
  absl::StatusOr<std::optional<size_t>> AddGiven(const char* name, const plan::Plan& plan) {
    substitution::SearchedGraph graph{simple_, plan.substitutions};
    if (!plan.substitutions.empty()) {
      const auto rules = substitution::Applicable(substitution::ShippedRules().rules);
      std::set<std::string> checked;
      absl::StatusOr<graph::Graph> made =
          SubstitutedAndChecked(simple_, rules, plan.substitutions, &folded_, &checked);
      if (!made.ok()) {
        choice_.refused.emplace_back(made.status().message());
        return std::nullopt;
      }
      graph.graph = *std::move(made);
    }
    options_.passes.forests.fixed = plan.forests;
    HEDDLE_ASSIGN_OR_RETURN(Made made, Make(plan.layouts, {plan.separate, plan.columns},
                                            std::nullopt, nullptr, &graph));
    return Add(name, std::move(made));
  }

  // Of the contenders that are surely faster than the first, the one expected to be the fastest.
  void Settle(const PlanSearch& search) {
    const PlanCost& first = choice_.contenders[0].cost;
    for (size_t i = 1; i < choice_.contenders.size(); ++i) {
      const PlanCost& cost = choice_.contenders[i].cost;
      if (search.tuned.has_value() && cost.measured < cost.calls && i != tuned_) continue;
      if (cost.ns + SpreadNs(cost, first) >= NsOf(first) * (1 - kWorthwhile)) continue;
      if (NsOf(cost) < NsOf(choice_.best().cost)) choice_.chosen = i;
    }
  }

  graph::Graph simple_;
  ModelOptions options_;
  plan::KernelCosts costs_;
  plan::ReuseModel reuse_;
  const int64_t memory_bytes_;  // what an inference may need
  graph::FoldMemo folded_;
  graph::FuseMemo programs_;
  std::vector<std::pair<Layout, graph::FusedGraph>> uniform_;
  std::vector<Made> made_;       // of the contenders
  std::vector<Made> forests_;    // one for each form of forests
  std::optional<size_t> tuned_;  // the contender with PlanSearch::tuned
  PlanChoice choice_;
};

}  // namespace

double SpreadNs(const PlanCost& cost, const PlanCost& other) {
  std::map<std::string, double> saved = cost.saved_ns;
  for (const auto& [key, ns] : other.saved_ns) saved[key] -= ns;
  double variance = cost.spread_ns * cost.spread_ns;
  for (const auto& [key, ns] : saved) variance += kSavedSpread * ns * kSavedSpread * ns;
  return std::sqrt(variance);
}

PlansToTune WhatToTune(const PlanChoice& choice) {
  // Tuning gains up to about so much more on the kernels of one plan than on those of another
  // (docs/benchmarks.md, graphs).
  constexpr double kNear = 1.1;
  const Contender &best = choice.best(), &estimated = choice.contenders.front();
  if (!best.plan.forests.empty() || !estimated.fits) return {&best};
  const auto has_own = [](const Contender& one, const std::vector<const Contender*>& others) {
    std::set<std::string> keys;
    for (const Contender* other : others) {
      for (const graph::Task& task : other->tasks) keys.insert(task.key);
    }
    return std::any_of(one.tasks.begin(), one.tasks.end(),
                       [&](const graph::Task& task) { return !keys.contains(task.key); });
  };
  // Of the plans that cost little more than the chosen one, and have a kernel that no plan of `taken` has, the cheapest; null: there is none.
  const auto near = [&](const std::vector<const Contender*>& taken) {
    const Contender* found = nullptr;
    for (const Contender& other : choice.contenders) {
      if (other.cost.ns > kNear * best.cost.ns || !has_own(other, taken)) continue;
      if (found == nullptr || other.cost.ns < found->cost.ns) found = &other;
    }
    return found;
  };
  PlansToTune tuned{&best};
  if (choice.chosen == 0) {
    const Contender* other = near({&estimated});
    if (other == nullptr) return tuned;
    tuned.plan = other;
  } else if (!has_own(estimated, {&best})) {
    return tuned;
  }
  tuned.estimated = &estimated;
  tuned.runner_up = near({tuned.plan, tuned.estimated});
  return tuned;
}

std::string TimedOutText(const PlanChoice& choice, const PlanSearch& search) {
  if (!choice.timed_out) return "";
  const int searches = search.mode == PlanSearch::Mode::kJoint ? 2 : 1;
  return absl::StrCat("the search for graphs ended after ", absl::FormatDuration(search.time_limit),
                      " with ", choice.graphs, " graphs tried, of at most ",
                      searches * search.graphs,
                      ", so there may be a faster plan: submit with --plan sequential, or give the "
                      "worker a CPU slot of more cores than ",
                      search.threads);
}

absl::StatusOr<PlanChoice> ChoosePlan(std::string_view onnx, const ModelOptions& options,
                                      const Target& target,
                                      const std::map<std::string, double>& measured_ns,
                                      const PlanSearch& search,
                                      const plan::Experience& experience) {
  HEDDLE_ASSIGN_OR_RETURN(
      const std::unique_ptr<Chooser> chooser,
      Chooser::Make(onnx, options, target, measured_ns, experience, search.memory_bytes));
  return chooser->Choose(search);
}

}  // namespace heddle
