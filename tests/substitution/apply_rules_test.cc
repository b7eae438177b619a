// Rules that are applied to every graph: concatenations behind pools and inside convolutions, against the graph as
// it was.
#include "compiler/substitution/apply_rules.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "compiler/graph/core/graph_builder.h"
#include "compiler/graph/ops/op_util.h"
#include "compiler/graph/passes/evaluate.h"
#include "compiler/graph/passes/pair_concats.h"
#include "compiler/runtime/numerics.h"
#include "tests/graph/random_graph.h"

namespace heddle::substitution {
namespace {

using graph::Attrs;
using graph::Graph;
using graph::GraphBuilder;
using graph::Node;
using graph::OpKind;
using graph::Shape;
using graph::TensorData;
using graph::TestRng;
using graph::ValueId;

struct Fire {
  std::vector<int64_t> parts;  // channels
  bool pool = false;
  OpKind kind = OpKind::kMaxPool;
  int64_t out = 2;  // channels of the convolution; 0: none
  bool read_twice = false;
  int64_t axis = 1;
};

Graph Build(TestRng& rng, const Fire& f) {
  GraphBuilder b;
  std::vector<ValueId> parts;
  for (int64_t c : f.parts) parts.push_back(b.Input("x", {ir::DType::kF32, {1, c, 6, 6}}));
  ValueId x = *b.Add(OpKind::kConcat, parts, {{"axis", f.axis}}, "concat");
  std::vector<std::pair<std::string, ValueId>> outputs;
  if (f.read_twice) outputs.emplace_back("joined", *b.Add(OpKind::kRelu, {x}, {}, "relu"));
  if (f.pool) {
    const Attrs window{{"kernel", Shape{3, 3}}, {"strides", Shape{2, 2}}, {"pads", Shape(4, 1)}};
    x = *b.Add(f.kind, {x}, window, "pool");
  }
  if (f.out > 0) {
    const int64_t in = b.Type(x).shape[1];
    const ValueId w =
        b.Constant("w", graph::RandomTensor(rng, {ir::DType::kF32, {f.out, in, 3, 3}}));
    x = *b.Add(OpKind::kConv2d, {x, w}, {{"pads", Shape(4, 1)}}, "conv");
  }
  outputs.emplace_back("y", x);
  return *b.Build(outputs);
}

// As Simplify and Place do it.
Graph Simplified(const Graph& graph) {
  return *graph::JoinConcats(*ApplyRules(*graph::PairConcats(graph)));
}

Graph Sunk(const Fire& f) {
  TestRng rng(3);
  const Graph graph = Build(rng, f), sunk = Simplified(graph);
  const std::vector<TensorData> inputs = graph::RandomInputs(rng, graph);
  EXPECT_LE(
      graph::Difference(*graph::EvaluateGraph(graph, inputs), *graph::EvaluateGraph(sunk, inputs)),
      runtime::kDirectTolerance.relative)  // as SubstitutedAndChecked
      << graph::Print(sunk);
  return sunk;
}

TEST(ApplyRules, AConvolutionOfTwoPartsIsASumOfTwo) {
  for (const bool pool : {false, true}) {
    const Graph sunk = Sunk({.parts = {3, 2}, .pool = pool});
    EXPECT_EQ(CountOps(sunk, OpKind::kConcat), 0);
    EXPECT_EQ(CountOps(sunk, OpKind::kConv2d), 2);
    EXPECT_EQ(CountOps(sunk, OpKind::kMaxPool), pool ? 2 : 0);
  }
}

TEST(ApplyRules, BehindAPoolThereIsLessToCopy) {
  const Graph sunk = Sunk({.parts = {1, 2, 3}, .pool = true});
  EXPECT_EQ(CountOps(sunk, OpKind::kMaxPool), 3);
  EXPECT_EQ(CountOps(sunk, OpKind::kConcat), 1);  // three parts stay together for the convolution
  EXPECT_EQ(sunk.nodes[3].kind, OpKind::kConcat);
}

// Averages that do not count padding, too.
TEST(ApplyRules, AveragesSinkAsMaximaDo) {
  const Graph sunk = Sunk({.parts = {4, 2, 3}, .pool = true, .kind = OpKind::kAvgPool, .out = 0});
  EXPECT_EQ(CountOps(sunk, OpKind::kAvgPool), 3);
  EXPECT_EQ(CountOps(sunk, OpKind::kConcat), 1);
}

TEST(ApplyRules, StaysWhereItIsWorthIt) {
  EXPECT_EQ(CountOps(Sunk({.parts = {3, 2}, .out = 5}), OpKind::kConv2d),
            1);  // sums as large as the parts
  EXPECT_EQ(CountOps(Sunk({.parts = {3, 2}, .read_twice = true}), OpKind::kConv2d), 1);
  EXPECT_EQ(CountOps(Sunk({.parts = {4, 4}, .pool = true, .out = 0, .axis = 2}), OpKind::kMaxPool),
            1);
}

TEST(ApplyRules, NamesOfColumnsStay) {
  TestRng rng(3);
  Graph graph = Build(rng, {.parts = {1, 2, 3}, .pool = true});
  graph.tables.outputs = {{.labels = {}}};
  for (int64_t c = 0; c < graph::NumElements(graph.values[graph.outputs[0]].type); ++c)
    graph.tables.outputs[0].columns.push_back(std::to_string(c));
  ASSERT_TRUE(CheckGraph(graph).ok()) << CheckGraph(graph);
  const Graph sunk = Simplified(graph);
  ASSERT_EQ(CountOps(sunk, OpKind::kMaxPool), 3) << "no rule was applied";
  EXPECT_EQ(sunk.tables, graph.tables);
}

}  // namespace
}  // namespace heddle::substitution
