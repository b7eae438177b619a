// Rules in graphs: they are found where they apply, what they make computes the same, and what would be wrong is
// refused.
#include "compiler/substitution/match.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "compiler/graph/core/graph_builder.h"
#include "compiler/graph/core/tensor_data.h"
#include "compiler/graph/fusion/fuse.h"
#include "compiler/graph/passes/evaluate.h"
#include "compiler/graph/passes/passes.h"
#include "compiler/substitution/rule_file.h"
#include "compiler/substitution/search.h"
#include "tests/graph/random_graph.h"
#include "tests/substitution/same_results.h"

namespace heddle::substitution {
namespace {

using graph::Attrs;
using graph::Graph;
using graph::GraphBuilder;
using graph::OpKind;
using graph::Shape;
using graph::TensorType;
using graph::ValueId;
using testing::HasSubstr;

class GraphOf {
 public:
  ValueId In(Shape shape) {
    return b_.Input(absl::StrCat("x", inputs_++), {ir::DType::kF32, std::move(shape)});
  }
  ValueId Weights(const Shape& shape) {
    return b_.Constant("w", graph::RandomTensor(rng_, {ir::DType::kF32, shape}));
  }
  ValueId Add(OpKind kind, std::vector<ValueId> inputs, Attrs attrs = {}) {
    return *b_.Add(kind, std::move(inputs), std::move(attrs), std::string(graph::NameOf(kind)));
  }
  ValueId Conv(ValueId x, const Shape& weights, Shape pads, int64_t groups = 1,
               Shape strides = {1, 1}) {
    return Add(OpKind::kConv2d, {x, Weights(weights)},
               {{"pads", std::move(pads)}, {"groups", groups}, {"strides", std::move(strides)}});
  }
  Graph Build(const std::vector<ValueId>& outputs) {
    std::vector<std::pair<std::string, ValueId>> named;
    for (const ValueId v : outputs) named.emplace_back(absl::StrCat("y", named.size()), v);
    return *b_.Build(named);
  }

 private:
  GraphBuilder b_;
  graph::TestRng rng_{11};
  int inputs_ = 0;
};

constexpr char kMergeProducts[] =
    "matmul(x, y), matmul(x, z) => split0[1](matmul(x, concat[1](y, z))), split1[1](matmul(x, "
    "concat[1](y, z)))";
constexpr char kMergeConvolutions[] =
    "conv[s](x, y), conv[s](x, z) => split0[1](conv[s](x, concat[0](y, z))), split1[1](conv[s](x, "
    "concat[0](y, z)))";

TEST(Match, ProductsOfOneOperandAreMerged) {
  for (const Shape& left : {Shape{3, 4}, Shape{2, 3, 4}}) {
    GraphOf g;
    const ValueId x = g.In(left);
    const ValueId a = g.Add(OpKind::kMatmul, {x, g.Weights({4, 5})});
    const ValueId b = g.Add(OpKind::kMatmul, {x, g.Weights({4, 2})});
    const Graph graph = g.Build({a, b});
    const DirectedRule rule = Directed(kMergeProducts);
    const std::vector<Match> matches = FindMatches(graph, rule);
    ASSERT_EQ(matches.size(), 2u);  // in both orders
    for (const Match& match : matches) {
      const auto after = Apply(graph, rule, match);
      ASSERT_TRUE(after.ok()) << after.status();
      EXPECT_EQ(CountOps(*after, OpKind::kMatmul), 1);
      ExpectSame(graph, *after);
    }
  }
}

// The paper's figure 2.5: a product is the transposed product of the transposed operands. Each transposed operand is a
// matrix by rows or by columns, which gives four graphs.
TEST(Match, TheTransposedProductHasThePapersFourLayouts) {
  GraphOf g;
  const Graph graph = g.Build({g.Add(OpKind::kMatmul, {g.In({24, 40}), g.In({40, 56})})});
  const DirectedRule rule =
      Directed("matmul(x, y) => transpose(matmul(transpose(y), transpose(x)))");
  const std::vector<Match> matches = FindMatches(graph, rule);
  ASSERT_EQ(matches.size(), 1u);
  const auto after = Apply(graph, rule, matches[0]);
  ASSERT_TRUE(after.ok()) << after.status();
  ExpectSame(graph, *after);
  const std::set<std::string> names = graph::MayBeColumns(*after);
  const std::vector<std::string> transposed(names.begin(), names.end());
  ASSERT_EQ(transposed.size(), 2u) << graph::Print(*after);
  graph::TestRng rng(5);
  const auto inputs = graph::RandomInputs(rng, graph);
  const auto expected = graph::EvaluateGraph(graph, inputs);
  ASSERT_TRUE(expected.ok()) << expected.status();
  std::set<std::vector<std::string>> graphs;  // by the keys of their kernels
  for (const bool first : {false, true}) {
    for (const bool second : {false, true}) {
      graph::FuseOptions options;
      if (first) options.columns.insert(transposed[0]);
      if (second) options.columns.insert(transposed[1]);
      const auto fused = graph::Fuse(*after, options);
      ASSERT_TRUE(fused.ok()) << fused.status();
      // The product, what transposes its result, and a copy of each operand that is by rows.
      EXPECT_EQ(fused->groups.size(), 2u + !first + !second);
      std::vector<std::string> keys;
      for (const graph::Group& group : fused->groups) keys.push_back(group.key);
      graphs.insert(keys);
      const auto computed = graph::EvaluateFused(*fused, inputs);
      ASSERT_TRUE(computed.ok()) << computed.status();
      EXPECT_LE(graph::Difference(*expected, *computed), kTolerance);
    }
  }
  EXPECT_EQ(graphs.size(), 4u);
}

// The paper's figure 2.6: the second product needs the first one's result, so merging closes a cycle.
TEST(Match, ACycleIsRefused) {
  GraphOf g;
  const ValueId a = g.In({4, 4}), b = g.In({4, 4});
  const ValueId first = g.Add(OpKind::kMatmul, {a, b});
  const ValueId second = g.Add(OpKind::kMatmul, {a, g.Add(OpKind::kRelu, {first})});
  const Graph graph = g.Build({second});
  const DirectedRule rule = Directed(kMergeProducts);
  const std::vector<Match> matches = FindMatches(graph, rule);
  ASSERT_EQ(matches.size(), 2u);
  for (const Match& match : matches) {
    const auto after = Apply(graph, rule, match);
    ASSERT_FALSE(after.ok());
    EXPECT_THAT(std::string(after.status().message()), HasSubstr("cycle"));
  }
}

TEST(Match, ConvolutionsOfOneImageAreMergedIfTheirWindowsAreEqual) {
  const DirectedRule rule = Directed(kMergeConvolutions);
  GraphOf g;
  const ValueId x = g.In({1, 3, 6, 6});
  const Graph graph =
      g.Build({g.Conv(x, {4, 3, 3, 3}, {1, 1, 1, 1}), g.Conv(x, {2, 3, 3, 3}, {1, 1, 1, 1})});
  ASSERT_EQ(FindMatches(graph, rule).size(), 2u);
  const auto after = Apply(graph, rule, FindMatches(graph, rule)[0]);
  ASSERT_TRUE(after.ok()) << after.status();
  EXPECT_EQ(CountOps(*after, OpKind::kConv2d), 1);
  ExpectSame(graph, *after);

  GraphOf other;
  const ValueId y = other.In({1, 4, 6, 6});
  const Graph strided = other.Build({other.Conv(y, {4, 4, 3, 3}, {1, 1, 1, 1}),
                                     other.Conv(y, {4, 4, 3, 3}, {1, 1, 1, 1}, 1, {2, 2}),
                                     other.Conv(y, {4, 1, 3, 3}, {1, 1, 1, 1}, 4)});
  EXPECT_TRUE(FindMatches(strided, rule).empty());
}

// Windows are compared relative to the kernel: a larger kernel with more padding is the same window.
TEST(Match, ASmallKernelIsEnlargedToThatOfItsSibling) {
  const DirectedRule rule = Directed("conv[s](x, y) => conv[s](x, enlarge[k](y))");
  for (const int64_t stride : {1, 2}) {
    for (const int64_t pad : {0, 1}) {
      GraphOf g;
      const ValueId x = g.In({1, 3, 7, 7});
      const ValueId small = g.Conv(x, {2, 3, 1, 1}, {pad, pad, pad, pad}, 1, {stride, stride});
      const ValueId large =
          g.Conv(x, {2, 3, 3, 3}, {pad + 1, pad + 1, pad + 1, pad + 1}, 1, {stride, stride});
      const Graph graph = g.Build({small, large});
      const std::vector<Match> matches = FindMatches(graph, rule);
      ASSERT_EQ(matches.size(), 1u);
      const auto after = Apply(graph, rule, matches[0]);
      ASSERT_TRUE(after.ok()) << after.status();
      ExpectSame(graph, *after);
      // Now they are merged.
      EXPECT_EQ(FindMatches(*graph::FoldConstants(*after), Directed(kMergeConvolutions)).size(),
                2u);
    }
  }
}

// Biases are broadcast: they are joined along the channels, whatever their rank.
TEST(Match, BiasesOfPartsBecomeOneBias) {
  const DirectedRule rule = Directed(
      "add(split0[a](x), y), add(split1[a](x), z) => split0[a](add(concat[a](y, z), x)), "
      "split1[a](add(concat[a](y, z), x))");
  GraphOf g;
  const ValueId x = g.In({2, 5, 3, 3});
  const auto part = [&](int64_t begin, int64_t size) {
    const ValueId slice = g.Add(OpKind::kSlice, {x},
                                {{"starts", Shape{0, begin, 0, 0}},
                                 {"steps", Shape{1, 1, 1, 1}},
                                 {"sizes", Shape{2, size, 3, 3}}});
    return g.Add(OpKind::kAdd, {slice, g.Weights({size, 1, 1})});
  };
  const Graph graph = g.Build({part(0, 3), part(3, 2)});
  const std::vector<Match> matches = FindMatches(graph, rule);
  ASSERT_EQ(matches.size(), 1u);
  const auto after = Apply(graph, rule, matches[0]);
  ASSERT_TRUE(after.ok()) << after.status();
  EXPECT_EQ(CountOps(*after, OpKind::kAdd), 1);
  ExpectSame(graph, *after);
}

// One number for all channels cannot be joined with another: there is no part of it.
TEST(Match, WhatHasNoPartsIsRefused) {
  const DirectedRule rule = Directed(
      "split0[a](add(x, y)), split1[a](add(x, y)) => add(split0[a](x), split0[a](y)), "
      "add(split1[a](x), split1[a](y))");
  GraphOf g;
  const ValueId sum = g.Add(OpKind::kAdd, {g.In({1, 4, 2, 2}), g.Weights({1, 1, 1})});
  const auto part = [&](int64_t begin) {
    return g.Add(OpKind::kSlice, {sum},
                 {{"starts", Shape{0, begin, 0, 0}},
                  {"steps", Shape{1, 1, 1, 1}},
                  {"sizes", Shape{1, 2, 2, 2}}});
  };
  const Graph graph = g.Build({part(0), part(2)});
  const std::vector<Match> matches = FindMatches(graph, rule);
  EXPECT_FALSE(matches.empty());
  for (const Match& match : matches) EXPECT_FALSE(Apply(graph, rule, match).ok());
}

// A result that others read, too, is computed for them as before.
TEST(Match, ResultsInsideThatOthersReadStay) {
  GraphOf g;
  const ValueId x = g.In({3, 4});
  const ValueId inner = g.Add(OpKind::kMatmul, {x, g.Weights({4, 4})});
  const ValueId outer = g.Add(OpKind::kMatmul, {inner, g.Weights({4, 2})});
  const Graph graph = g.Build({outer, g.Add(OpKind::kRelu, {inner})});
  const DirectedRule rule = Directed("matmul(matmul(x, y), z) => matmul(x, matmul(y, z))");
  const auto after = Apply(graph, rule, FindMatches(graph, rule).at(0));
  ASSERT_TRUE(after.ok()) << after.status();
  EXPECT_EQ(CountOps(*after, OpKind::kMatmul), 3);
  ExpectSame(graph, *after);
}

TEST(Match, SubstitutionsReplayByNames) {
  GraphOf g;
  const ValueId x = g.In({3, 4});
  const Graph graph = g.Build({g.Add(OpKind::kMatmul, {x, g.Weights({4, 5})}),
                               g.Add(OpKind::kMatmul, {x, g.Weights({4, 2})})});
  const auto rules = Applicable(ShippedRules().rules);
  const auto merge = std::find_if(rules.begin(), rules.end(), [](const DirectedRule& r) {
    return ToText(r.rule) == kMergeProducts;
  });
  ASSERT_NE(merge, rules.end());
  const plan::Substitution named = Named(graph, *merge, FindMatches(graph, *merge))[0];
  EXPECT_EQ(named.nodes.size(), 2u);
  const auto after = Substituted(graph, rules, named, nullptr);
  ASSERT_TRUE(after.ok()) << after.status();
  EXPECT_EQ(CountOps(*after, OpKind::kMatmul), 1);
  EXPECT_THAT(std::string(Substituted(graph, rules, {"none", 0, {}}, nullptr).status().message()),
              HasSubstr("no rule 'none'"));
  EXPECT_THAT(std::string(Substituted(*after, rules, named, nullptr).status().message()),
              HasSubstr("does not apply to"));
}

// Whatever a shipped rule makes of a random graph computes the same.
TEST(Match, RandomGraphsStayTheSame) {
  const auto rules = Applicable(ShippedRules().rules);
  std::set<std::string> used;
  int applied = 0;
  for (uint64_t seed = 0; seed < 250; ++seed) {
    graph::TestRng rng(seed);
    const auto simple = graph::Simplify(graph::RandomGraph(rng, 14));
    ASSERT_TRUE(simple.ok()) << simple.status();
    Graph current = *simple;
    // Rules in random order, each on the result of the last one.
    std::vector<DirectedRule> order = rules;
    std::shuffle(order.begin(), order.end(), rng);
    int steps = 0;
    std::string trace;
    for (const DirectedRule& rule : order) {
      if (steps == 6) break;
      for (const Match& match : FindMatches(current, rule, 3)) {
        const auto after = Apply(current, rule, match);
        if (!after.ok()) {
          ASSERT_TRUE(absl::IsFailedPrecondition(after.status())) << after.status();
          continue;
        }
        current = *after;
        used.insert(rule.name);
        absl::StrAppend(&trace, "\n", ToText(rule.rule));
        ++applied;
        ++steps;
        break;
      }
    }
    ExpectSame(*simple, current, seed);
    if (HasFailure()) FAIL() << "seed " << seed << trace;
  }
  EXPECT_GT(applied, 250);
  EXPECT_GT(used.size(), 15u);
}

}  // namespace
}  // namespace heddle::substitution
