// Products that share an operand, against the same graph unmerged.
#include "compiler/graph/passes/merge_products.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "compiler/graph/core/graph_builder.h"
#include "compiler/graph/ops/op_util.h"
#include "compiler/graph/passes/evaluate.h"
#include "tests/graph/random_graph.h"

namespace heddle::graph {
namespace {

int Products(const Graph& g) {
  return static_cast<int>(std::count_if(g.nodes.begin(), g.nodes.end(),
                                        [](const Node& n) { return n.kind == OpKind::kMatmul; }));
}

class ProductNetwork {
 public:
  explicit ProductNetwork(uint64_t seed) : rng_(seed) {}

  int64_t Draw(int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(rng_);
  }
  ValueId Input(int64_t rows, int64_t columns) {
    return b_.Input("x", {ir::DType::kF32, {rows, columns}});
  }
  ValueId Matrix(int64_t rows, int64_t columns) {
    return b_.Constant("w", RandomTensor(rng_, {ir::DType::kF32, {rows, columns}}));
  }
  ValueId Rows(ValueId x, int64_t begin, int64_t rows) {
    const int64_t columns = b_.Type(x).shape[1];
    return Add(
        OpKind::kSlice, {x},
        {{"starts", Shape{begin, 0}}, {"steps", Shape{1, 1}}, {"sizes", Shape{rows, columns}}});
  }
  ValueId Add(OpKind kind, const std::vector<ValueId>& inputs, const Attrs& attrs = {}) {
    return *b_.Add(kind, inputs, attrs, NameOf(kind));
  }
  void Output(ValueId v) { outputs_.emplace_back(absl::StrCat("y", outputs_.size()), v); }

  // The merged graph, after a comparison of the results.
  Graph Merged() {
    const Graph graph = *b_.Build(outputs_);
    const auto merged = MergeProducts(graph);
    EXPECT_TRUE(merged.ok()) << merged.status() << "\n" << Print(graph);
    if (!merged.ok()) return graph;
    EXPECT_TRUE(CheckGraph(*merged).ok()) << Print(*merged);
    const std::vector<TensorData> inputs = RandomInputs(rng_, graph);
    EXPECT_EQ(Difference(*EvaluateGraph(graph, inputs), *EvaluateGraph(*merged, inputs)), 0)
        << Print(graph) << "\nmerged\n"
        << Print(*merged);
    return *merged;
  }

 private:
  TestRng rng_;
  GraphBuilder b_;
  std::vector<std::pair<std::string, ValueId>> outputs_;
};

TEST(MergeProducts, AnUnrolledRecurrenceMultipliesItsInputOnce) {
  ProductNetwork n(1);
  constexpr int64_t kSteps = 5, kWidth = 6;
  const ValueId x = n.Input(kSteps, kWidth), h0 = n.Input(1, kWidth);
  const ValueId wx[] = {n.Matrix(kWidth, 4), n.Matrix(kWidth, 6)};
  const ValueId wh[] = {n.Matrix(kWidth, 4), n.Matrix(kWidth, 6)};
  ValueId h = h0;
  for (int64_t t = 0; t < kSteps; ++t) {
    const ValueId row = n.Rows(x, t, 1);
    std::vector<ValueId> parts;
    for (int i = 0; i < 2; ++i) {
      parts.push_back(n.Add(OpKind::kAdd, {n.Add(OpKind::kMatmul, {row, wx[i]}),
                                           n.Add(OpKind::kMatmul, {h, wh[i]})}));
    }
    n.Output(n.Add(OpKind::kTanh, {parts[0]}));
    h = n.Add(OpKind::kTanh, {parts[1]});
  }
  n.Output(h);
  EXPECT_EQ(Products(n.Merged()), 1 + kSteps);  // the input's, and one of the state a step
}

TEST(MergeProducts, ManyRowsStayAlone) {
  ProductNetwork n(2);
  const ValueId x = n.Input(17, 3);
  for (int i = 0; i < 3; ++i)
    n.Output(n.Add(OpKind::kRelu, {n.Add(OpKind::kMatmul, {x, n.Matrix(3, 4)})}));
  EXPECT_EQ(Products(n.Merged()), 3);
}

TEST(MergeProducts, TwoRowsOfAHundredAreNotWorthAllOfThem) {
  ProductNetwork n(3);
  const ValueId x = n.Input(100, 3), w = n.Matrix(3, 4);
  for (int64_t t : {0, 99}) n.Output(n.Add(OpKind::kMatmul, {n.Rows(x, t, 1), w}));
  EXPECT_EQ(Products(n.Merged()), 2);
}

TEST(MergeProductsProperty, AnySlicesAndMatricesKeepTheResult) {
  int merged = 0;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    ProductNetwork n(seed);
    const int64_t rows = n.Draw(1, 20), columns = n.Draw(1, 4);
    const ValueId x = n.Input(rows, columns);
    std::vector<ValueId> matrices;
    for (int64_t i = n.Draw(1, 3); i > 0; --i) matrices.push_back(n.Matrix(columns, n.Draw(1, 5)));
    const int64_t products = n.Draw(1, 6);
    for (int64_t i = 0; i < products; ++i) {
      const int64_t begin = n.Draw(0, rows - 1), count = n.Draw(1, rows - begin);
      const ValueId from = n.Draw(0, 2) == 0 ? x : n.Rows(x, begin, count);
      const ValueId matrix = matrices[n.Draw(0, static_cast<int64_t>(matrices.size()) - 1)];
      n.Output(n.Add(OpKind::kMatmul, {from, matrix}));
    }
    merged += Products(n.Merged()) < products;
    if (::testing::Test::HasFailure()) FAIL() << "seed " << seed;
  }
  EXPECT_GE(merged, 50);
}

}  // namespace
}  // namespace heddle::graph
