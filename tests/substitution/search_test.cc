// The search finds what an exhaustive search finds, and never returns something worse than it was given.
#include "compiler/substitution/search.h"

#include <gtest/gtest.h>

#include <map>
#include <queue>
#include <set>

#include "absl/strings/str_cat.h"
#include "base/splitmix.h"
#include "compiler/graph/core/graph_builder.h"
#include "compiler/graph/core/operator.h"
#include "compiler/graph/core/tensor_data.h"
#include "compiler/graph/passes/evaluate.h"
#include "compiler/substitution/rule_file.h"
#include "tests/graph/random_graph.h"

namespace heddle::substitution {
namespace {

using graph::Graph;
using graph::OpKind;
using graph::Shape;
using graph::ValueId;

// Products, sums and maps of a few matrices and constants.
Graph RandomMatrices(graph::TestRng& rng, int nodes) {
  graph::GraphBuilder b;
  std::vector<ValueId> values;
  for (const char* name : {"a", "b"}) values.push_back(b.Input(name, {ir::DType::kF32, {4, 4}}));
  for (int i = 0; i < 2; ++i)
    values.push_back(b.Constant("w", graph::RandomTensor(rng, {ir::DType::kF32, {4, 4}})));
  const auto pick = [&] { return values[rng() % values.size()]; };
  for (int i = 0; i < nodes; ++i) {
    constexpr OpKind kKinds[] = {OpKind::kMatmul, OpKind::kMatmul, OpKind::kAdd, OpKind::kRelu};
    const OpKind kind = kKinds[rng() % 4];
    std::vector<ValueId> inputs{pick()};
    if (kind != OpKind::kRelu) inputs.push_back(pick());
    values.push_back(*b.Add(kind, inputs, {}, std::string(graph::NameOf(kind))));
  }
  // What nothing reads is an output.
  std::set<ValueId> read;
  for (const ValueId v : values) {
    if (b.ProducerOf(v) == nullptr) continue;
    const std::vector<ValueId> inputs = b.ProducerOf(v)->inputs;
    read.insert(inputs.begin(), inputs.end());
  }
  std::vector<std::pair<std::string, ValueId>> outputs;
  for (const ValueId v : values) {
    if (b.IsNodeOutput(v) && !read.contains(v))
      outputs.emplace_back(absl::StrCat("y", outputs.size()), v);
  }
  return *graph::FoldConstants(*b.Build(outputs));
}

// Some cost that depends on kinds and types only, made up anew for each seed.
double CostOf(const Graph& graph, uint64_t seed) {
  double sum = 0;
  for (const graph::Node& node : graph.nodes) {
    uint64_t h = seed * 31 + static_cast<uint64_t>(node.kind);
    for (const ValueId v : node.inputs) {
      for (const int64_t e : graph.values[static_cast<size_t>(v)].type.shape)
        h = SplitMix64(h ^ static_cast<uint64_t>(e));
    }
    sum += 1 + static_cast<double>(SplitMix64(h) % 100) / 10;
  }
  return sum;
}

std::vector<DirectedRule> Rules() {
  std::vector<Rule> rules;
  for (const char* text : {
           "matmul(matmul(x, y), z) => matmul(x, matmul(y, z))",
           "matmul(x, y), matmul(x, z) => split0[1](matmul(x, concat[1](y, z))), "
           "split1[1](matmul(x, concat[1](y, z)))",
           "add(matmul(x, y), matmul(x, z)) => matmul(x, add(y, z))",
           "add(matmul(x, z), matmul(y, z)) => matmul(add(x, y), z)",
           "add(matmul(x, y), matmul(z, w)) => matmul(concat[1](x, z), concat[0](y, w))",
       })
    rules.push_back(*ParseRule(text));
  return Applicable(rules);
}

constexpr size_t kMostGraphs = 1500;

// The least cost of all graphs that the rules reach; nullopt: there are too many.
std::optional<double> Exhaustive(const Graph& start, const std::vector<DirectedRule>& rules,
                                 uint64_t seed, graph::FoldMemo* memo) {
  std::queue<Graph> open;
  std::set<std::string> seen{GraphDigest(start)};
  open.push(start);
  double best = CostOf(start, seed);
  while (!open.empty()) {
    const Graph graph = std::move(open.front());
    open.pop();
    for (const DirectedRule& rule : rules) {
      for (const Match& match : FindMatches(graph, rule)) {
        auto applied = Apply(graph, rule, match);
        if (!applied.ok()) continue;
        Graph next = *graph::FoldConstants(*applied, memo);
        if (!seen.insert(GraphDigest(next)).second) continue;
        if (seen.size() > kMostGraphs) return std::nullopt;
        best = std::min(best, CostOf(next, seed));
        open.push(std::move(next));
      }
    }
  }
  return best;
}

TEST(Search, FindsWhatExhaustiveSearchFinds) {
  const auto rules = Rules();
  int cases = 0, improved = 0;
  for (uint64_t seed = 0; cases < 200; ++seed) {
    ASSERT_LT(seed, 5000u);
    graph::TestRng rng(seed);
    const Graph graph = RandomMatrices(rng, 5);
    graph::FoldMemo memo;
    const std::optional<double> optimum = Exhaustive(graph, rules, seed, &memo);
    if (!optimum.has_value()) continue;
    ++cases;
    SearchOptions options;
    options.alpha = 3;
    options.evaluations = 2 * static_cast<int>(kMostGraphs);
    options.all_alike = false;
    const auto cost = [&](const Graph& g) -> absl::StatusOr<double> { return CostOf(g, seed); };
    const auto found = Search(graph, rules, cost, &memo, options);
    ASSERT_TRUE(found.ok()) << found.status();
    EXPECT_TRUE(found->exhausted);
    EXPECT_DOUBLE_EQ(found->best[0].cost, *optimum) << "seed " << seed;
    improved += *optimum < CostOf(graph, seed);
  }
  EXPECT_GT(improved, 20);
}

// What it returns replays, computes the same, and the same arguments give the same result.
TEST(Search, ResultsReplayAndAreTheSameAgain) {
  const auto rules = Applicable(ShippedRules().rules);
  for (uint64_t seed = 0; seed < 12; ++seed) {
    graph::TestRng rng(seed);
    const Graph graph = RandomMatrices(rng, 6);
    const auto cost = [&](const Graph& g) -> absl::StatusOr<double> { return CostOf(g, seed); };
    SearchOptions options;
    options.evaluations = 60;
    graph::FoldMemo memo, other_memo;
    const auto found = Search(graph, rules, cost, &memo, options);
    const auto again = Search(graph, rules, cost, &other_memo, options);
    ASSERT_TRUE(found.ok() && again.ok());
    ASSERT_EQ(found->best.size(), again->best.size());
    EXPECT_LE(found->evaluations, 60);
    EXPECT_LE(found->best[0].cost, CostOf(graph, seed));
    for (size_t i = 0; i < found->best.size(); ++i) {
      const SearchedGraph& best = found->best[i];
      EXPECT_EQ(best.substitutions, again->best[i].substitutions);
      Graph replayed = graph;
      graph::FoldMemo fresh;
      for (const plan::Substitution& s : best.substitutions) {
        const auto next = Substituted(replayed, rules, s, &fresh);
        ASSERT_TRUE(next.ok()) << next.status();
        replayed = *next;
      }
      EXPECT_EQ(graph::Print(replayed), graph::Print(best.graph));
      const auto inputs = graph::RandomInputs(rng, graph);
      EXPECT_LE(graph::Difference(*graph::EvaluateGraph(graph, inputs),
                                  *graph::EvaluateGraph(replayed, inputs)),
                1e-4);
    }
  }
}

// A step that costs more is taken if another one follows, within alpha.
TEST(Search, AlphaLetsItPassOverAHill) {
  graph::GraphBuilder b;
  graph::TestRng rng(1);
  const ValueId x = b.Input("x", {ir::DType::kF32, {4, 4}});
  const auto product = [&](ValueId left) {
    return *b.Add(OpKind::kMatmul,
                  {left, b.Constant("w", graph::RandomTensor(rng, {ir::DType::kF32, {4, 4}}))}, {},
                  "p");
  };
  const ValueId y = *b.Add(OpKind::kAdd, {product(product(x)), product(product(x))}, {}, "sum");
  const Graph graph = *b.Build({{"y", y}});
  // Folding one chain costs a little; both folded, the sum of products of x folds, too.
  const auto cost = [](const Graph& g) -> absl::StatusOr<double> {
    const double products[] = {0, 10, 104, 102, 100};
    int n = 0;
    for (const graph::Node& node : g.nodes) n += node.kind == OpKind::kMatmul;
    return n < 5 ? products[n] : 1000;
  };
  for (const auto& [alpha, want] : {std::pair(1.0, 100.0), std::pair(1.05, 10.0)}) {
    graph::FoldMemo memo;
    SearchOptions options;
    options.alpha = alpha;
    options.all_alike = false;
    const auto found = Search(graph, Rules(), cost, &memo, options);
    ASSERT_TRUE(found.ok());
    EXPECT_EQ(found->best[0].cost, want) << alpha;
  }
}

}  // namespace
}  // namespace heddle::substitution
