#include "compiler/graph/layout_choice.h"

#include <algorithm>
#include <queue>

namespace heddle::graph {
namespace {

constexpr int64_t kInfinite = int64_t{1} << 60;

// Maximum flow by Dinic's algorithm: breadth-first levels, then blocking flow along them.
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

  // Whether each node is on the source's side of the minimum cut with the fewest nodes there.
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

  // Depth: at most the number of levels, a few per operator along a path of the model.
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

  std::vector<Edge> edges_;  // each followed by its reverse
  std::vector<std::vector<int>> edges_of_;
  std::vector<int> level_;
  std::vector<size_t> next_;
};

Layout LayoutOf(int who, const std::vector<Layout>& layouts) {
  return who == LayoutProblem::kModel ? Layout::kChannelsFirst : layouts[who];
}

}  // namespace

bool IsMoved(const LayoutProblem::Value& value, const std::vector<Layout>& layouts) {
  return std::any_of(value.readers.begin(), value.readers.end(), [&](int reader) {
    return LayoutOf(reader, layouts) != LayoutOf(value.maker, layouts);
  });
}

int64_t CostOf(const LayoutProblem& problem, const std::vector<Layout>& layouts) {
  int64_t cost = 0;
  for (size_t i = 0; i < layouts.size(); ++i) cost += problem.operators[i].Cost(layouts[i]);
  for (const LayoutProblem::Value& value : problem.values) {
    if (IsMoved(value, layouts)) cost += value.move_ns;
  }
  return cost;
}

std::vector<Layout> ChooseLayouts(const LayoutProblem& problem) {
  const int operators = static_cast<int>(problem.operators.size());
  const int values = static_cast<int>(problem.values.size());
  const int source = operators + 2 * values, sink = source + 1;
  FlowNetwork network(sink + 1);
  for (int i = 0; i < operators; ++i) {
    network.Add(source, i, problem.operators[i].last_ns);
    network.Add(i, sink, problem.operators[i].first_ns);
  }
  for (int v = 0; v < values; ++v) {
    const LayoutProblem::Value& value = problem.values[v];
    const int some_last = operators + 2 * v, some_first = some_last + 1;
    const auto node = [&](int who) { return who == LayoutProblem::kModel ? source : who; };
    network.Add(node(value.maker), some_last, value.move_ns);
    network.Add(some_first, node(value.maker), value.move_ns);
    for (int reader : value.readers) {
      network.Add(some_last, node(reader), kInfinite);
      network.Add(node(reader), some_first, kInfinite);
    }
  }
  const std::vector<bool> first = network.Cut(source, sink);
  std::vector<Layout> layouts;
  for (int i = 0; i < operators; ++i) {
    layouts.push_back(first[i] ? Layout::kChannelsFirst : Layout::kChannelsLast);
  }
  return layouts;
}

}  // namespace heddle::graph
