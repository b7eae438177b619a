#include "compiler/graph/layout/layout_choice.h"

#include <algorithm>
#include <queue>

namespace heddle::graph {
namespace {

constexpr int64_t kInfinite = int64_t{1} << 60;

// Maximum flow by Dinic's algorithm: breadth-first levels, then a blocking flow along them.
class FlowNetwork {
 public:
  explicit FlowNetwork(int nodes) : edges_of_(nodes) {}

  void Add(int from, int to, int64_t capacity) {
    if (capacity <= 0) return;
    edges_of_[from].push_back(static_cast<int>(edges_.size()));
    edges_.push_back({to, capacity});
    edges_of_[to].push_back(static_cast<int>(edges_.size()));
    edges_.push_back({from, 0});
  }

  // For each node, whether it is on the source's side of a minimum cut. Among the minimum cuts, it
  // is the one with the fewest nodes on that side.
  std::vector<bool> Cut(int source, int sink) {
    while (Levels(source), level_[sink] >= 0) {
      next_.assign(edges_of_.size(), 0);
      while (Push(source, sink, kInfinite) > 0) {
      }
    }
    std::vector<bool> reached;
    for (int level : level_) reached.push_back(level >= 0);
    return reached;
  }

 private:
  struct Edge {
    int to;
    int64_t left;
  };

  void Levels(int source) {
    level_.assign(edges_of_.size(), -1);
    level_[source] = 0;
    std::queue<int> open({source});
    for (; !open.empty(); open.pop()) {
      for (int e : edges_of_[open.front()]) {
        const Edge& edge = edges_[e];
        if (edge.left == 0 || level_[edge.to] >= 0) continue;
        level_[edge.to] = level_[open.front()] + 1;
        open.push(edge.to);
      }
    }
  }

  // The recursion depth is at most the number of levels, which is a few for each operator along a
  // path of the model.
  int64_t Push(int from, int sink, int64_t most) {
    if (from == sink) return most;
    for (size_t& k = next_[from]; k < edges_of_[from].size(); ++k) {
      const int e = edges_of_[from][k];
      const int to = edges_[e].to;
      if (edges_[e].left == 0 || level_[to] != level_[from] + 1) continue;
      const int64_t pushed = Push(to, sink, std::min(most, edges_[e].left));
      if (pushed == 0) continue;
      edges_[e].left -= pushed;
      edges_[e ^ 1].left += pushed;
      return pushed;
    }
    return 0;
  }

  std::vector<Edge> edges_;  // each is followed by its reverse
  std::vector<std::vector<int>> edges_of_;
  std::vector<int> level_;
  std::vector<size_t> next_;
};

Layout ChosenLayout(int who, const std::vector<Layout>& layouts) {
  return who == LayoutProblem::kModel ? Layout::kChannelsFirst : layouts[who];
}

// The cheapest choice in which each operator keeps its layout or changes to `to`. It is a minimum
// cut between `keeps` and `takes`. Each value adds one network node for `to`, and one for each
// other layout that its maker or a reader has now. A node is cut, at the cost of one transpose, if
// the maker or a reader has that layout after the choice. That is one transpose too many for each
// value, whatever the choice. Ties go to the choice with the most operators channels last, or with
// the fewest in the other layouts.
std::vector<Layout> Expanded(const LayoutProblem& problem, std::vector<Layout> layouts, Layout to) {
  const int operators = static_cast<int>(problem.operators.size());
  const int values = static_cast<int>(problem.values.size());
  const int keeps = operators, takes = keeps + 1, layout_count = static_cast<int>(kLayouts.size());
  FlowNetwork network(takes + 1 + layout_count * values);
  // The cut has the fewest nodes on its source's side, so this decides ties.
  const bool most = to == Layout::kChannelsLast;
  const auto add = [&](int from, int onto, int64_t capacity) {
    most ? network.Add(from, onto, capacity) : network.Add(onto, from, capacity);
  };
  for (int i = 0; i < operators; ++i) {
    if (layouts[i] == to) continue;
    add(keeps, i, problem.operators[i].Cost(to));
    add(i, takes, problem.operators[i].Cost(layouts[i]));
  }
  for (int v = 0; v < values; ++v) {
    const LayoutProblem::Value& value = problem.values[v];
    const Layout target = value.Form(to);
    const auto node_for = [&](Layout layout) {
      return takes + 1 + layout_count * v + static_cast<int>(layout);
    };
    std::vector<int> members = value.readers;
    members.push_back(value.maker);
    std::array<bool, kLayouts.size()> present{};
    for (int who : members) {
      const Layout now = value.Form(ChosenLayout(who, layouts));
      const int node = now == target ? takes : who == LayoutProblem::kModel ? keeps : who;
      add(node_for(target), node, kInfinite);
      present[static_cast<size_t>(now)] = true;
      if (now != target) add(node, node_for(now), kInfinite);
    }
    add(keeps, node_for(target), value.move_ns);
    for (Layout layout : kLayouts) {
      if (layout != target && present[static_cast<size_t>(layout)])
        add(node_for(layout), takes, value.move_ns);
    }
  }
  const std::vector<bool> at_source = most ? network.Cut(keeps, takes) : network.Cut(takes, keeps);
  for (int i = 0; i < operators; ++i) {
    if (at_source[i] != most) layouts[i] = to;
  }
  return layouts;
}

// Expands the layouts in turn until no expansion lowers the cost. The first expansion is made even
// if the cost stays the same.
std::vector<Layout> Descend(const LayoutProblem& problem, Layout from,
                            const std::array<Layout, kLayouts.size()>& order) {
  std::vector<Layout> layouts(problem.operators.size(), from);
  layouts = Expanded(problem, std::move(layouts), order[0]);
  int64_t cost = CostOf(problem, layouts);
  for (size_t k = 1, in_vain = 1; in_vain < order.size(); k = (k + 1) % order.size()) {
    std::vector<Layout> next = Expanded(problem, layouts, order[k]);
    const int64_t next_cost = CostOf(problem, next);
    ++in_vain;
    if (next_cost >= cost) continue;
    in_vain = 1;
    cost = next_cost;
    layouts = std::move(next);
  }
  return layouts;
}

}  // namespace

std::vector<Layout> MovesOf(const LayoutProblem::Value& value, const std::vector<Layout>& layouts) {
  std::vector<Layout> moves;
  const Layout made = value.Form(ChosenLayout(value.maker, layouts));
  for (Layout layout : kLayouts) {
    const bool read = std::any_of(value.readers.begin(), value.readers.end(), [&](int reader) {
      return value.Form(ChosenLayout(reader, layouts)) == layout;
    });
    if (read && layout != made) moves.push_back(layout);
  }
  return moves;
}

int64_t CostOf(const LayoutProblem& problem, const std::vector<Layout>& layouts) {
  int64_t cost = 0;
  for (size_t i = 0; i < layouts.size(); ++i) cost += problem.operators[i].Cost(layouts[i]);
  for (const LayoutProblem::Value& value : problem.values) {
    cost += static_cast<int64_t>(MovesOf(value, layouts).size()) * value.move_ns;
  }
  return cost;
}

std::vector<Layout> ChooseLayouts(const LayoutProblem& problem) {
  constexpr Layout kFirst = Layout::kChannelsFirst, kLast = Layout::kChannelsLast,
                   kBlocked = Layout::kChannelsBlocked;
  const bool two = std::all_of(
      problem.operators.begin(), problem.operators.end(),
      [](const LayoutProblem::Operator& op) { return op.blocked_ns >= LayoutProblem::kNever; });
  if (two) {
    return Expanded(problem, std::vector<Layout>(problem.operators.size(), kFirst), kLast);
  }
  // The first expansion of each descent finds the best choice of the two layouts it starts with.
  std::vector<Layout> best = Descend(problem, kFirst, {kLast, kBlocked, kFirst});
  for (const auto& [from, next, other] :
       {std::array{kFirst, kBlocked, kLast}, std::array{kLast, kBlocked, kFirst}}) {
    std::vector<Layout> layouts = Descend(problem, from, {next, other, from});
    if (CostOf(problem, layouts) < CostOf(problem, best)) best = std::move(layouts);
  }
  return best;
}

}  // namespace heddle::graph
