// The search finds what an exhaustive search finds, and never returns something worse than it was given.
#include "compiler/substitution/search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <limits>
#include <map>
#include <optional>
#include <queue>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/splitmix.h"
#include "client/zoo/zoo.h"
#include "compiler/graph/core/graph_builder.h"
#include "compiler/graph/core/operator.h"
#include "compiler/graph/core/tensor_data.h"
#include "compiler/graph/passes/evaluate.h"
#include "compiler/graph/passes/passes.h"
#include "compiler/onnx/import.h"
#include "compiler/substitution/rule_file.h"
#include "tests/graph/random_graph.h"
#include "tests/substitution/same_results.h"

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

// The least cost of all graphs that the rules reach through graphs that cost at most `most`; nullopt: there are too
// many. `most` does not count for the first graph.
std::optional<double> Exhaustive(const Graph& start, const std::vector<DirectedRule>& rules,
                                 uint64_t seed, graph::FoldMemo* memo,
                                 double most = std::numeric_limits<double>::infinity()) {
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
        const double cost = CostOf(next, seed);
        best = std::min(best, cost);
        if (cost <= most) open.push(std::move(next));
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
    const auto cost = [&](const Graph& g, double) -> absl::StatusOr<double> {
      return CostOf(g, seed);
    };
    const auto found = Search(graph, rules, cost, &memo, options);
    ASSERT_TRUE(found.ok()) << found.status();
    EXPECT_TRUE(found->exhausted);
    EXPECT_DOUBLE_EQ(found->best[0].cost, *optimum) << "seed " << seed;
    improved += *optimum < CostOf(graph, seed);
  }
  EXPECT_GT(improved, 20);
}

// With the alpha of production, a hill of more than a twentieth ends a path. So the optimum may be missed, but not what
// is reached through graphs that are never that much costlier than what the search found. That is the promise, and on
// most of these graphs it is the optimum.
TEST(Search, WithTheAlphaOfProductionFindsWhatNoHillHides) {
  constexpr double kSumError = 1e-9;  // costs are summed in the order of the nodes
  const auto rules = Rules();
  int cases = 0, optimal = 0, improved = 0;
  for (uint64_t seed = 0; cases < 200; ++seed) {
    ASSERT_LT(seed, 5000u);
    graph::TestRng rng(seed);
    const Graph graph = RandomMatrices(rng, 5);
    graph::FoldMemo memo;
    const std::optional<double> optimum = Exhaustive(graph, rules, seed, &memo);
    if (!optimum.has_value()) continue;
    ++cases;
    SearchOptions options;
    ASSERT_EQ(options.alpha, 1.05);
    options.evaluations = 2 * static_cast<int>(kMostGraphs);
    options.all_alike = false;
    const auto cost = [&](const Graph& g, double) -> absl::StatusOr<double> {
      return CostOf(g, seed);
    };
    const auto found = Search(graph, rules, cost, &memo, options);
    ASSERT_TRUE(found.ok()) << found.status();
    EXPECT_TRUE(found->exhausted);
    const double best = found->best[0].cost;
    EXPECT_GE(best, *optimum - kSumError) << "seed " << seed;
    EXPECT_LE(best, CostOf(graph, seed)) << "seed " << seed;
    EXPECT_LE(best, *Exhaustive(graph, rules, seed, &memo, options.alpha * best) + kSumError)
        << "seed " << seed;
    optimal += best <= *optimum + kSumError;
    improved += best < CostOf(graph, seed);
  }
  std::printf("%d of %d are optimal\n", optimal, cases);
  EXPECT_GE(optimal, 190);
  EXPECT_GT(improved, 20);
}

// What it returns replays, computes the same, and the same arguments give the same result.
TEST(Search, ResultsReplayAndAreTheSameAgain) {
  const auto rules = Applicable(ShippedRules().rules);
  for (uint64_t seed = 0; seed < 12; ++seed) {
    graph::TestRng rng(seed);
    const Graph graph = RandomMatrices(rng, 6);
    const auto cost = [&](const Graph& g, double) -> absl::StatusOr<double> {
      return CostOf(g, seed);
    };
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
                kTolerance);
    }
  }
}

// Constants that have the type and the elements of one before.
size_t EqualConstants(const Graph& graph) {
  std::set<std::pair<std::string, std::string_view>> distinct;
  for (const auto& [v, data] : graph.constants)
    distinct.emplace(graph::ToText(data.type), *data.bytes);
  return graph.constants.size() - distinct.size();
}

// The graph with the target in place of the source, built anew. The oracle of Substitute.
absl::StatusOr<Graph> Rebuilt(const Graph& graph, const std::vector<DirectedRule>& rules,
                              const plan::Substitution& place) {
  const absl::StatusOr<NamedMatch> named = FindNamed(graph, rules, place);
  if (!named.ok()) return named.status();
  absl::StatusOr<Graph> built = Apply(graph, *named->rule, named->match);
  if (absl::IsFailedPrecondition(built.status())) return DoesNotApply(place);
  return built;
}

// Putting a target into a graph gives what building the graph anew gives.
TEST(Substitute, GivesWhatApplyGives) {
  const auto rules = Applicable(ShippedRules().rules);
  int applied = 0, refused = 0;
  for (uint64_t seed = 0; seed < 150; ++seed) {
    graph::TestRng rng(seed);
    const Graph graph = RandomMatrices(rng, 8);
    for (const DirectedRule& rule : rules) {
      for (const plan::Substitution& place : Named(graph, rule, FindMatches(graph, rule))) {
        graph::FoldMemo memo;
        const auto built = Rebuilt(graph, rules, place);
        const auto spliced = Substituted(graph, rules, place, &memo);
        ASSERT_EQ(built.ok(), spliced.ok()) << built.status() << spliced.status();
        if (!built.ok()) {
          EXPECT_EQ(built.status(), spliced.status());
          ++refused;
          continue;
        }
        ++applied;
        ASSERT_TRUE(graph::CheckGraph(*spliced).ok()) << graph::CheckGraph(*spliced) << "\n"
                                                      << graph::Print(*spliced);
        EXPECT_LE(EqualConstants(*spliced), EqualConstants(graph)) << graph::Print(*spliced);
        EXPECT_EQ(GraphDigest(*spliced), GraphDigest(*graph::FoldConstants(*built, &memo)))
            << rule.name << "\n"
            << graph::Print(*built) << graph::Print(*spliced);
        for (size_t i = 0; i < graph.outputs.size(); ++i) {
          EXPECT_EQ(graph.values[static_cast<size_t>(graph.outputs[i])].name,
                    spliced->values[static_cast<size_t>(spliced->outputs[i])].name);
        }
      }
    }
  }
  EXPECT_GT(applied, 1000);
  EXPECT_GT(refused, 5);
}

// Replaces each sum of two products by one product. Returns how many it replaced.
int JoinProducts(graph::FoldMemo* memo, Graph* graph) {
  const auto rules = Rules();
  const Rule joins =
      *ParseRule("add(matmul(x, y), matmul(z, w)) => matmul(concat[1](x, z), concat[0](y, w))");
  const auto rule = std::find_if(rules.begin(), rules.end(),
                                 [&](const DirectedRule& r) { return r.rule == joins; });
  if (rule == rules.end()) return 0;
  int applied = 0;
  for (const plan::Substitution& place : Named(*graph, *rule, FindMatches(*graph, *rule))) {
    const absl::Status status = Substitute(rules, place, memo, graph);
    EXPECT_TRUE(status.ok() || absl::IsNotFound(status)) << status;
    applied += status.ok();
  }
  return applied;
}

// Steps of a recurrence share merged weights as they share those of the model.
TEST(Substitute, MakesEqualConstantsOnce) {
  graph::TestRng rng(1);
  graph::GraphBuilder b;
  const graph::TensorType row{ir::DType::kF32, {1, 4}}, square{ir::DType::kF32, {4, 4}};
  const ValueId w = b.Constant("w", graph::RandomTensor(rng, square)),
                u = b.Constant("u", graph::RandomTensor(rng, square));
  ValueId h = b.Input("h", row);
  constexpr int kSteps = 5;
  for (int step = 0; step < kSteps; ++step) {
    const ValueId x = b.Input(absl::StrCat("x", step), row);
    const ValueId from_x = *b.Add(OpKind::kMatmul, {x, w}, {}, "from_x");
    const ValueId from_h = *b.Add(OpKind::kMatmul, {h, u}, {}, "from_h");
    h = *b.Add(OpKind::kAdd, {from_x, from_h}, {}, "sum");
    h = *b.Add(OpKind::kRelu, {h}, {}, "h");
  }
  const Graph graph = *b.Build({{"y", h}});
  for (const bool remembers : {true, false}) {
    graph::FoldMemo memo;
    Graph merged = graph;
    EXPECT_EQ(JoinProducts(remembers ? &memo : nullptr, &merged), kSteps);
    EXPECT_EQ(merged.constants.size(), 1u) << graph::Print(merged);
    const auto inputs = graph::RandomInputs(rng, graph);
    EXPECT_LE(graph::Difference(*graph::EvaluateGraph(graph, inputs),
                                *graph::EvaluateGraph(merged, inputs)),
              kTolerance);
  }
}

TEST(Substitute, NasRnnHasMergedWeightsOnce) {
  Graph graph = *graph::Simplify(*graph::ImportOnnx(*zoo::MakeZooModel("nasrnn", 0)));
  EXPECT_EQ(graph.constants.size(), 16u);
  graph::FoldMemo memo;
  EXPECT_EQ(JoinProducts(&memo, &graph), 70);  // seven in each of ten steps
  EXPECT_EQ(EqualConstants(graph), 0u);
  EXPECT_EQ(graph.constants.size(), 9u);  // of 16 matrices, 14 are merged two by two
}

// The same on images, and what the graph computes stays the same.
TEST(Substitute, KeepsWhatRandomGraphsCompute) {
  const auto rules = Applicable(ShippedRules().rules);
  int applied = 0;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    graph::TestRng rng(seed);
    const Graph graph = *graph::Simplify(graph::RandomGraph(rng, 12));
    const auto inputs = graph::RandomInputs(rng, graph);
    const auto before = graph::EvaluateGraph(graph, inputs);
    ASSERT_TRUE(before.ok()) << before.status();
    for (const DirectedRule& rule : rules) {
      const auto places = Named(graph, rule, FindMatches(graph, rule, 3));
      for (const plan::Substitution& place : places) {
        const auto after = Substituted(graph, rules, place, nullptr);
        EXPECT_EQ(after.ok(), Rebuilt(graph, rules, place).ok());
        if (!after.ok()) continue;
        ++applied;
        ASSERT_TRUE(graph::CheckGraph(*after).ok()) << graph::CheckGraph(*after);
        const auto computed = graph::EvaluateGraph(*after, inputs);
        ASSERT_TRUE(computed.ok()) << computed.status();
        EXPECT_LE(graph::Difference(*before, *computed), kTolerance)
            << rule.name << "\n"
            << graph::Print(graph) << graph::Print(*after);
      }
    }
  }
  EXPECT_GT(applied, 50);
}

// The number of threads changes nothing that is returned.
TEST(Search, ThreadsDoNotChangeTheResult) {
  const auto rules = Applicable(ShippedRules().rules);
  for (uint64_t seed = 0; seed < 8; ++seed) {
    graph::TestRng rng(seed);
    const Graph graph = RandomMatrices(rng, 7);
    const auto cost = [&](const Graph& g, double) -> absl::StatusOr<double> {
      return CostOf(g, seed);
    };
    std::optional<SearchResult> first;
    std::vector<double> first_curve;
    for (int threads = 1; threads <= 3; ++threads) {
      graph::FoldMemo memo;
      std::vector<double> curve;
      SearchOptions options;
      options.evaluations = 70;
      options.threads = threads;
      options.progress = [&](int evaluation, double best) {
        EXPECT_EQ(evaluation, static_cast<int>(curve.size()) + 1);
        curve.push_back(best);
      };
      const auto found = Search(graph, rules, cost, &memo, options);
      ASSERT_TRUE(found.ok()) << found.status();
      if (!first.has_value()) {
        first = *found;
        first_curve = curve;
        continue;
      }
      EXPECT_EQ(found->evaluations, first->evaluations);
      EXPECT_EQ(found->exhausted, first->exhausted);
      EXPECT_EQ(curve, first_curve);
      ASSERT_EQ(found->best.size(), first->best.size());
      for (size_t i = 0; i < found->best.size(); ++i) {
        EXPECT_EQ(found->best[i].cost, first->best[i].cost);
        EXPECT_EQ(found->best[i].substitutions, first->best[i].substitutions);
        EXPECT_EQ(graph::Print(found->best[i].graph), graph::Print(first->best[i].graph));
      }
    }
  }
}

// A longer search goes on where a shorter one ended, so its result is never worse.
TEST(Search, MoreEvaluationsAreNeverWorse) {
  const auto rules = Applicable(ShippedRules().rules);
  for (uint64_t seed = 20; seed < 26; ++seed) {
    graph::TestRng rng(seed);
    const Graph graph = RandomMatrices(rng, 7);
    const auto cost = [&](const Graph& g, double) -> absl::StatusOr<double> {
      return CostOf(g, seed);
    };
    std::vector<double> longest;
    for (const int evaluations : {80, 1, 2, 7, 16, 17, 33, 60}) {
      graph::FoldMemo memo;
      std::vector<double> curve;
      SearchOptions options;
      options.evaluations = evaluations;
      options.progress = [&](int, double best) { curve.push_back(best); };
      const auto found = Search(graph, rules, cost, &memo, options);
      ASSERT_TRUE(found.ok()) << found.status();
      EXPECT_LE(found->evaluations, evaluations);
      EXPECT_TRUE(std::is_sorted(curve.rbegin(), curve.rend()));
      EXPECT_EQ(found->best[0].cost, curve.back());
      if (longest.empty()) longest = curve;
      ASSERT_LE(curve.size(), longest.size());
      EXPECT_TRUE(std::equal(curve.begin(), curve.end(), longest.begin()));
    }
  }
}

// A cost function that stops at the limit changes nothing but the number of full evaluations.
TEST(Search, CostsAboveTheLimitNeedNotBeExact) {
  const auto rules = Rules();
  int stopped = 0;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    graph::TestRng rng(seed);
    const Graph graph = RandomMatrices(rng, 6);
    SearchOptions options;
    options.evaluations = 150;
    graph::FoldMemo memo;
    const auto exact = Search(
        graph, rules,
        [&](const Graph& g, double) -> absl::StatusOr<double> { return CostOf(g, seed); }, &memo,
        options);
    const auto bounded = Search(
        graph, rules,
        [&](const Graph& g, double limit) -> absl::StatusOr<double> {
          const double cost = CostOf(g, seed);
          if (cost <= limit) return cost;
          ++stopped;
          return 1.001 * limit;
        },
        &memo, options);
    ASSERT_TRUE(exact.ok() && bounded.ok());
    ASSERT_EQ(exact->best.size(), bounded->best.size());
    for (size_t i = 0; i < exact->best.size(); ++i) {
      EXPECT_EQ(exact->best[i].cost, bounded->best[i].cost);
      EXPECT_EQ(exact->best[i].substitutions, bounded->best[i].substitutions);
    }
  }
  EXPECT_GT(stopped, 50);
}

// What another search found is where this one starts, too.
TEST(Search, GoesOnFromWhatIsKnown) {
  const auto rules = Rules();
  for (uint64_t seed = 0; seed < 10; ++seed) {
    graph::TestRng rng(seed);
    const Graph graph = RandomMatrices(rng, 6);
    const auto cost = [&](const Graph& g, double) -> absl::StatusOr<double> {
      return CostOf(g, seed);
    };
    graph::FoldMemo memo;
    SearchOptions options;
    options.evaluations = 100;
    const auto found = Search(graph, rules, cost, &memo, options);
    ASSERT_TRUE(found.ok());
    options.also = found->best;
    options.evaluations = 1 + static_cast<int>(found->best.size());
    const auto more = Search(graph, rules, cost, &memo, options);
    ASSERT_TRUE(more.ok());
    EXPECT_EQ(more->best[0].cost, found->best[0].cost);
  }
}

TEST(Search, TheTimeLimitEndsIt) {
  graph::TestRng rng(3);
  const Graph graph = RandomMatrices(rng, 7);
  SearchOptions options;
  options.time_limit = absl::ZeroDuration();
  graph::FoldMemo memo;
  const auto found = Search(
      graph, Applicable(ShippedRules().rules),
      [](const Graph& g, double) -> absl::StatusOr<double> { return CostOf(g, 1); }, &memo,
      options);
  ASSERT_TRUE(found.ok());
  EXPECT_TRUE(found->timed_out);
  EXPECT_FALSE(found->exhausted);
  EXPECT_EQ(found->evaluations, 1);  // the given graph always has a cost
  EXPECT_EQ(graph::Print(found->best[0].graph), graph::Print(graph));
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
  const auto cost = [](const Graph& g, double) -> absl::StatusOr<double> {
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
