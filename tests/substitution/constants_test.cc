// Rules with constants and with weights that are computed before: constants are recognised and made, and what the
// rules make of graphs computes the same.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "compiler/graph/core/graph_builder.h"
#include "compiler/graph/core/operator.h"
#include "compiler/graph/core/tensor_data.h"
#include "compiler/graph/passes/evaluate.h"
#include "compiler/graph/passes/fold_constants.h"
#include "compiler/graph/passes/passes.h"
#include "compiler/substitution/match.h"
#include "compiler/substitution/rule_file.h"
#include "tests/graph/random_graph.h"
#include "tests/substitution/same_results.h"

namespace heddle::substitution {
namespace {

using graph::Attrs;
using graph::Graph;
using graph::OpKind;
using graph::Shape;
using graph::ValueId;

struct Network {
  graph::TestRng rng;
  graph::GraphBuilder b = {};
  explicit Network(uint64_t seed) : rng(seed) {}

  int64_t Draw(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(rng() % static_cast<uint64_t>(high - low + 1));
  }
  ValueId In(const Shape& shape) { return b.Input("x", {ir::DType::kF32, shape}); }
  ValueId Weights(const Shape& shape) {
    return b.Constant("w", graph::RandomTensor(rng, {ir::DType::kF32, shape}));
  }
  ValueId Filled(const Shape& shape, double value) {
    return b.Constant("c", graph::Filled({ir::DType::kF32, shape}, value));
  }
  // Ones on the diagonal of the first two dimensions, in the middle of the others.
  ValueId Diagonal(const Shape& shape) {
    int64_t taps = 1;
    for (size_t d = 2; d < shape.size(); ++d) taps *= shape[d];
    std::vector<double> values(static_cast<size_t>(shape[0] * shape[1] * taps), 0);
    for (int64_t i = 0; i < shape[0]; ++i)
      values[static_cast<size_t>((i * shape[1] + i) * taps + taps / 2)] = 1;
    return b.Constant("i", graph::FromDoubles(values, shape, ir::DType::kF32));
  }
  ValueId Add(OpKind kind, const std::vector<ValueId>& inputs, const Attrs& attrs = {}) {
    return *b.Add(kind, inputs, attrs, std::string(graph::NameOf(kind)));
  }
  ValueId Conv(ValueId x, ValueId w, int64_t pad, int64_t groups = 1, int64_t stride = 1) {
    return Add(OpKind::kConv2d, {x, w},
               {{"pads", Shape(4, pad)}, {"groups", groups}, {"strides", Shape(2, stride)}});
  }
  ValueId Average(ValueId x, int64_t kernel, int64_t pad, int64_t stride, bool counts,
                  bool ceil = false) {
    return Add(OpKind::kAvgPool, {x},
               {{"kernel", Shape(2, kernel)},
                {"pads", Shape(4, pad)},
                {"strides", Shape(2, stride)},
                {"count_include_pad", int64_t{counts}},
                {"ceil_mode", int64_t{ceil}}});
  }
  Graph Build(ValueId y) { return *b.Build({{"y", y}}); }
};

// The graph after the first match that can be applied; the given one if there is none.
Graph Applied(const Graph& graph, const std::string& rule) {
  for (const Match& match : FindMatches(graph, Directed(rule))) {
    const auto after = Apply(graph, Directed(rule), match);
    EXPECT_TRUE(after.ok() || absl::IsFailedPrecondition(after.status())) << after.status();
    if (after.ok()) return *after;
  }
  return graph;
}

constexpr char kAverage[] = "avg_pool[k,s](x) => depthwise[s](x, pool_weights[k])";
constexpr char kAverageBack[] = "depthwise[s](x, pool_weights[k]) => avg_pool[k,s](x)";

TEST(Constants, AnAverageIsADepthwiseConvolutionAndBack) {
  int became = 0, stayed = 0;
  for (uint64_t seed = 0; seed < 100; ++seed) {
    Network n(seed);
    const int64_t kernel = n.Draw(1, 4), pad = n.Draw(0, kernel / 2), stride = n.Draw(1, 2);
    const bool counts = n.Draw(0, 1) == 1, ceil = n.Draw(0, 1) == 1;
    const ValueId x = n.In({n.Draw(1, 2), n.Draw(1, 4), n.Draw(4, 7), n.Draw(4, 7)});
    const Graph graph = n.Build(n.Average(x, kernel, pad, stride, counts, ceil));
    const Graph conv = Applied(graph, kAverage);
    ExpectSame(graph, conv, seed);
    if (CountOps(conv, OpKind::kConv2d) == 0) {
      // Padding that does not count, or an extent that is rounded up, is no convolution.
      EXPECT_TRUE((pad > 0 && !counts) || ceil);
      ++stayed;
      continue;
    }
    ++became;
    EXPECT_EQ(CountOps(conv, OpKind::kAvgPool), 0);
    // With one channel it is a convolution with one group.
    if (conv.values[static_cast<size_t>(conv.inputs[0])].type.shape[1] == 1) continue;
    const Graph back = Applied(conv, kAverageBack);
    EXPECT_EQ(CountOps(back, OpKind::kAvgPool), 1);
    ExpectSame(graph, back, seed);
  }
  EXPECT_GT(became, 15);
  EXPECT_GT(stayed, 10);
}

// Weights that are nearly those of an average are not.
TEST(Constants, OnlyExactConstantsMatch) {
  Network n(1);
  const ValueId x = n.In({1, 3, 5, 5});
  EXPECT_TRUE(
      FindMatches(n.Build(n.Conv(x, n.Filled({3, 1, 3, 3}, 0.111), 1, 3)), Directed(kAverageBack))
          .empty());
  Network m(1);
  const ValueId y = m.In({1, 3, 5, 5});
  EXPECT_EQ(
      FindMatches(m.Build(m.Conv(y, m.Filled({3, 1, 3, 3}, 1.0 / 9), 1, 3)), Directed(kAverageBack))
          .size(),
      1u);
}

// The example of the paper's NasNet: two averages and their sum are one depthwise convolution.
TEST(Constants, TwoAveragesAndASumAreOneConvolution) {
  Network n(2);
  const ValueId x = n.In({1, 3, 6, 6});
  const ValueId sum =
      n.Add(OpKind::kAdd, {n.Average(x, 3, 1, 1, true), n.Average(x, 3, 1, 1, true)});
  const Graph graph = n.Build(sum);
  const Graph after =
      Applied(graph,
              "add(avg_pool[k,s](x), avg_pool[k,s](x)) => depthwise[s](x, add(pool_weights[k], "
              "pool_weights[k]))");
  const Graph folded = *graph::FoldConstants(after);
  EXPECT_EQ(CountOps(folded, OpKind::kConv2d), 1);
  EXPECT_EQ(folded.nodes.size(), 1u);
  ExpectSame(graph, folded, 2);
}

// The same with an average and a depthwise convolution, and with two images.
TEST(Constants, AnAverageAndAConvolutionAreOneConvolution) {
  Network n(3);
  const ValueId x = n.In({2, 4, 6, 5});
  const ValueId sum = n.Add(
      OpKind::kAdd, {n.Average(x, 3, 1, 2, true), n.Conv(x, n.Weights({4, 1, 3, 3}), 1, 4, 2)});
  const Graph graph = n.Build(sum);
  const Graph after =
      Applied(graph,
              "add(avg_pool[k,s](x), depthwise[s](x, y)) => depthwise[s](x, add(pool_weights[k], "
              "y))");
  EXPECT_EQ(graph::FoldConstants(after)->nodes.size(), 1u);
  ExpectSame(graph, after, 3);
}

TEST(Constants, NeutralOperandsDisappear) {
  {
    Network n(4);
    const ValueId x = n.In({2, 3, 4});
    for (const Shape& ones : {Shape{}, Shape{4}, Shape{2, 3, 4}}) {
      Network m(4);
      const ValueId y = m.In({2, 3, 4});
      const ValueId product = m.Add(OpKind::kMul, {m.Filled(ones, 1), m.Add(OpKind::kRelu, {y})});
      const Graph graph = m.Build(product);
      const Graph after = Applied(graph, "mul(ones, x) => x");
      EXPECT_EQ(CountOps(after, OpKind::kMul), 0);
      ExpectSame(graph, after, 4);
    }
    // Ones that are larger than the other operand repeat it.
    const ValueId small = n.Add(OpKind::kMul, {n.Filled({5, 2, 3, 4}, 1), x});
    EXPECT_EQ(CountOps(Applied(n.Build(small), "mul(ones, x) => x"), OpKind::kMul), 1);
  }
  for (const bool left : {false, true}) {
    Network n(5);
    const ValueId x = n.Add(OpKind::kRelu, {n.In({2, 3, 3})}), i = n.Diagonal({3, 3});
    const Graph graph =
        n.Build(left ? n.Add(OpKind::kMatmul, {i, x}) : n.Add(OpKind::kMatmul, {x, i}));
    const Graph after =
        Applied(graph, left ? "matmul(identity, x) => x" : "matmul(x, identity) => x");
    EXPECT_EQ(CountOps(after, OpKind::kMatmul), 0);
    ExpectSame(graph, after, 5);
  }
  {
    Network n(6);
    const ValueId x = n.Add(OpKind::kRelu, {n.In({1, 3, 5, 5})});
    const Graph graph = n.Build(n.Conv(x, n.Diagonal({3, 3, 3, 3}), 1));
    const Graph after = Applied(graph, "conv[1](x, identity_weights[k]) => x");
    EXPECT_EQ(CountOps(after, OpKind::kConv2d), 0);
    ExpectSame(graph, after, 6);
  }
  {
    // Without padding the result is smaller.
    Network n(7);
    const Graph graph = n.Build(n.Conv(n.In({1, 3, 5, 5}), n.Diagonal({3, 3, 3, 3}), 0));
    EXPECT_TRUE(FindMatches(graph, Directed("conv[1](x, identity_weights[k]) => x")).empty());
  }
}

// A residual becomes part of the convolution.
TEST(Constants, AResidualBecomesPartOfTheWeights) {
  Network n(8);
  const ValueId x = n.In({1, 3, 6, 6});
  const Graph graph = n.Build(n.Add(OpKind::kAdd, {n.Conv(x, n.Weights({3, 3, 3, 3}), 1), x}));
  const Graph after =
      Applied(graph, "add(conv[1](x, y), x) => conv[1](x, add(y, identity_weights[k]))");
  EXPECT_EQ(graph::FoldConstants(after)->nodes.size(), 1u);
  ExpectSame(graph, after, 8);
}

constexpr char kMergeGroups[] = "grouped[s](x, y) => grouped[s](x, merge_groups[m](y))";

// A match for each divisor of the number of groups; all compute the same.
TEST(Groups, AreMergedByEveryDivisor) {
  for (uint64_t seed = 0; seed < 12; ++seed) {
    Network n(seed);
    const int64_t groups = std::vector<int64_t>{2, 4, 6, 8}[static_cast<size_t>(n.Draw(0, 3))];
    const int64_t in = n.Draw(1, 2), out = n.Draw(2, 3), stride = n.Draw(1, 2);
    const ValueId x = n.In({1, groups * in, 5, 6});
    const Graph graph = n.Build(n.Conv(x, n.Weights({groups * out, in, 3, 3}), 1, groups, stride));
    const std::vector<Match> matches = FindMatches(graph, Directed(kMergeGroups));
    std::set<int64_t> left;
    for (const Match& match : matches) {
      const auto after = Apply(graph, Directed(kMergeGroups), match);
      ASSERT_TRUE(after.ok()) << after.status();
      ASSERT_EQ(after->nodes.size(), 1u);
      left.insert(graph::AttrsOf(after->nodes[0]).Int("groups"));
      ExpectSame(graph, *after, seed);
    }
    std::set<int64_t> divisors;
    for (int64_t d = 1; d < groups; ++d) {
      if (groups % d == 0) divisors.insert(d);
    }
    EXPECT_EQ(left, divisors);
  }
}

TEST(Groups, OnlyGroupsOfOneSizeAreJoined) {
  const char* const rule =
      "concat[1](grouped[s](x, y), grouped[s](z, w)) => grouped[s](concat[1](x, z), concat[0](y, "
      "w))";
  for (const int64_t outputs : {2, 3}) {
    Network n(9);
    const ValueId a = n.In({1, 4, 5, 5}), b = n.In({1, 6, 5, 5});
    const ValueId first = n.Conv(a, n.Weights({4, 2, 3, 3}), 1, 2);
    const ValueId second = n.Conv(b, n.Weights({3 * outputs, 2, 3, 3}), 1, 3);
    const Graph graph = n.Build(n.Add(OpKind::kConcat, {first, second}, {{"axis", int64_t{1}}}));
    const Graph after = Applied(graph, rule);
    EXPECT_EQ(CountOps(after, OpKind::kConv2d), outputs == 2 ? 1 : 2);
    ExpectSame(graph, after, 9);
  }
}

// Reshapes and transposes change places with what works element by element.
TEST(Movements, ChangePlacesWithElementwiseOperators) {
  Network n(10);
  const ValueId x = n.In({2, 6, 4}), y = n.In({2, 6, 4});
  const auto heads = [&](ValueId v) {
    const ValueId split = n.Add(OpKind::kReshape, {v}, {{"shape", Shape{2, 6, 2, 2}}});
    return n.Add(OpKind::kTranspose, {split}, {{"perm", Shape{0, 2, 1, 3}}});
  };
  const Graph graph = n.Build(n.Add(OpKind::kAdd, {heads(x), heads(y)}));
  const std::string rule = "add(move[r](x), move[r](y)) => move[r](add(x, y))";
  const Graph once = Applied(graph, rule), twice = Applied(once, rule);
  EXPECT_EQ(twice.nodes.size(), 3u);
  ExpectSame(graph, twice, 10);
}

// Every shipped rule that needs constants or makes them, on random graphs that hold such constants.
TEST(Constants, RandomGraphsStayTheSame) {
  std::vector<DirectedRule> rules;
  for (const DirectedRule& rule : Applicable(ShippedRules().rules)) {
    const std::string text = ToText(rule.rule);
    for (const char* word : {"ones", "identity", "weights", "merge_groups", "move"}) {
      if (text.find(word) == std::string::npos) continue;
      rules.push_back(rule);
      break;
    }
  }
  EXPECT_GT(rules.size(), 20u);
  std::set<std::string> used;
  int applied = 0;
  for (uint64_t seed = 0; seed < 120; ++seed) {
    Network n(seed);
    const bool images = n.Draw(0, 2) > 0;
    const int64_t c = 2 * n.Draw(1, 2);
    std::vector<ValueId> values;
    const Shape shape = images ? Shape{1, c, 5, 5} : Shape{4, 4};
    for (int i = 0; i < 2; ++i) values.push_back(n.In(shape));
    const auto any = [&] {
      return values[static_cast<size_t>(n.Draw(0, static_cast<int64_t>(values.size()) - 1))];
    };
    for (int i = 0; i < 9; ++i) {
      const ValueId x = any();
      const int64_t kind = n.Draw(0, 8);
      if (kind == 0) values.push_back(n.Add(OpKind::kAdd, {x, any()}));
      if (kind == 1) values.push_back(n.Add(OpKind::kMul, {n.Filled({}, 1), x}));
      if (kind == 2) values.push_back(n.Add(OpKind::kRelu, {x}));
      if (!images) {
        if (kind == 3) values.push_back(n.Add(OpKind::kMatmul, {x, n.Diagonal({4, 4})}));
        if (kind == 4) values.push_back(n.Add(OpKind::kMatmul, {n.Diagonal({4, 4}), x}));
        if (kind == 5) values.push_back(n.Add(OpKind::kMatmul, {x, any()}));
        if (kind == 6) values.push_back(n.Add(OpKind::kAdd, {n.Diagonal({4, 4}), x}));
        if (kind >= 7) {
          const ValueId moved = n.Add(OpKind::kReshape, {x}, {{"shape", Shape{16}}});
          values.push_back(
              n.Add(OpKind::kReshape, {n.Add(OpKind::kTanh, {moved})}, {{"shape", Shape{4, 4}}}));
        }
        continue;
      }
      const int64_t pad = n.Draw(0, 1), kernel = 1 + 2 * pad;
      if (kind == 3 || kind == 4) values.push_back(n.Average(x, kernel, pad, 1, n.Draw(0, 3) > 0));
      if (kind == 5)
        values.push_back(
            n.Conv(x, n.Filled({c, 1, kernel, kernel}, 1.0 / static_cast<double>(kernel * kernel)),
                   pad, c));
      if (kind == 6) values.push_back(n.Conv(x, n.Diagonal({c, c, kernel, kernel}), pad));
      if (kind == 7) values.push_back(n.Conv(x, n.Weights({c, c, kernel, kernel}), pad));
      if (kind == 8) values.push_back(n.Conv(x, n.Weights({c, c / 2, kernel, kernel}), pad, 2));
    }
    if (!n.b.IsNodeOutput(values.back())) continue;
    const Graph graph = n.Build(values.back());
    Graph current = graph;
    std::vector<DirectedRule> order = rules;
    std::shuffle(order.begin(), order.end(), n.rng);
    std::string trace;
    int steps = 0;
    for (const DirectedRule& rule : order) {
      if (steps == 5) break;
      for (const Match& match : FindMatches(current, rule, 3)) {
        const auto after = Apply(current, rule, match);
        if (!after.ok()) {
          ASSERT_TRUE(absl::IsFailedPrecondition(after.status())) << after.status();
          continue;
        }
        current = *after;
        used.insert(rule.name);
        absl::StrAppend(&trace, "\n", ToText(rule.rule));
        ++applied, ++steps;
        break;
      }
    }
    ExpectSame(graph, current, seed);
    if (HasFailure()) FAIL() << "seed " << seed << trace;
  }
  EXPECT_GT(applied, 120);
  EXPECT_GT(used.size(), 8u);
}

}  // namespace
}  // namespace heddle::substitution
