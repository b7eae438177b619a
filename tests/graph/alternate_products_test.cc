// Recurrences whose matrix is larger than a cache, against the same graph before.
#include "compiler/graph/passes/alternate_products.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "compiler/graph/core/graph_builder.h"
#include "compiler/graph/ops/op_util.h"
#include "compiler/graph/passes/evaluate.h"
#include "tests/graph/random_graph.h"

namespace heddle::graph {
namespace {

// h' = a sum of slices of h * R, again and again.
class Recurrence {
 public:
  Recurrence(uint64_t seed, int64_t width, int64_t columns) : rng_(seed), width_(width) {
    matrix_ = b_.Constant("r", RandomTensor(rng_, {ir::DType::kF32, {width, columns}}));
    h_ = b_.Input("h", {ir::DType::kF32, {1, width}});
  }

  int64_t Draw(int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(rng_);
  }
  // Reads `width` columns at each of `starts`.
  void Step(const std::vector<int64_t>& starts) {
    const ValueId product = Add(OpKind::kMatmul, {h_, matrix_});
    ValueId sum = -1;
    for (int64_t start : starts) {
      const ValueId slice =
          Add(OpKind::kSlice, {product},
              {{"starts", Shape{0, start}}, {"steps", Shape{1, 1}}, {"sizes", Shape{1, width_}}});
      sum = sum < 0 ? slice : Add(OpKind::kAdd, {sum, slice});
    }
    h_ = Add(OpKind::kTanh, {sum});
  }
  // Makes the last product an output as a whole.
  void ReadWhole() { outputs_.emplace_back("whole", Add(OpKind::kMatmul, {h_, matrix_})); }

  // After a comparison of the results.
  Graph Alternated() {
    outputs_.emplace_back("y", h_);
    const Graph graph = *b_.Build(outputs_);
    const auto changed = AlternateProducts(graph);
    EXPECT_TRUE(changed.ok()) << changed.status();
    if (!changed.ok()) return graph;
    EXPECT_TRUE(CheckGraph(*changed).ok()) << Print(*changed);
    const std::vector<TensorData> inputs = RandomInputs(rng_, graph);
    EXPECT_EQ(Difference(*EvaluateGraph(graph, inputs), *EvaluateGraph(*changed, inputs)), 0);
    return *changed;
  }

 private:
  ValueId Add(OpKind kind, const std::vector<ValueId>& inputs, const Attrs& attrs = {}) {
    return *b_.Add(kind, inputs, attrs, NameOf(kind));
  }

  TestRng rng_;
  GraphBuilder b_;
  int64_t width_;
  ValueId matrix_ = -1, h_ = -1;
  std::vector<std::pair<std::string, ValueId>> outputs_;
};

// The matrices of the products, in the order these stand in the graph.
std::vector<ValueId> Matrices(const Graph& g) {
  std::vector<ValueId> matrices;
  for (const Node& n : g.nodes) {
    if (n.kind == OpKind::kMatmul) matrices.push_back(n.inputs[1]);
  }
  return matrices;
}

// Columns of 256 KiB: seven of them are near.
constexpr int64_t kWidth = 256;

TEST(AlternateProducts, EachProductBeginsWhereTheOneBeforeEnds) {
  Recurrence r(1, kWidth, 12 * kWidth);
  for (int step = 0; step < 4; ++step) r.Step({0, 5 * kWidth, 11 * kWidth});
  const Graph graph = r.Alternated();
  const std::vector<ValueId> matrices = Matrices(graph);
  ASSERT_EQ(matrices.size() % 4, 0u);
  const size_t parts = matrices.size() / 4;
  EXPECT_EQ(parts, 2u);  // 3 MiB
  for (size_t i = parts; i + parts <= matrices.size(); i += parts) {
    EXPECT_EQ(matrices[i], matrices[i - 1]) << i;
    EXPECT_TRUE(
        std::is_permutation(matrices.begin(), matrices.begin() + parts, matrices.begin() + i));
  }
  for (ValueId m : matrices) {
    EXPECT_LE(static_cast<int64_t>(graph.constants.at(m).bytes->size()),
              machine::GraphCore().near_bytes);
  }
}

TEST(AlternateProducts, WhatFitsACacheOrIsReadOnceStaysWhole) {
  Recurrence fits(2, kWidth, 7 * kWidth);
  for (int step = 0; step < 2; ++step) fits.Step({0, 6 * kWidth});
  EXPECT_EQ(Matrices(fits.Alternated()).size(), 2u);
  Recurrence once(3, kWidth, 12 * kWidth);
  once.Step({0, 11 * kWidth});
  EXPECT_EQ(Matrices(once.Alternated()).size(), 1u);
}

// A part that evicts itself is not found again either.
TEST(AlternateProducts, ASliceLargerThanACachePreventsIt) {
  for (const auto& [width, parts] : {std::pair{676, 3}, {680, 1}}) {  // 1.74 and 1.76 MiB
    Recurrence r(6, width, 3 * width);
    for (int step = 0; step < 2; ++step) r.Step({0, width, 2 * width});
    EXPECT_EQ(Matrices(r.Alternated()).size(), static_cast<size_t>(2 * parts)) << width;
  }
}

TEST(AlternateProducts, ASliceAcrossACutOrTheWholeResultPreventsIt) {
  Recurrence across(4, kWidth, 12 * kWidth);
  across.Step({0, kWidth / 2});
  across.Step({0, 11 * kWidth});
  EXPECT_EQ(Matrices(across.Alternated()).size(), 2u);
  Recurrence whole(5, kWidth, 12 * kWidth);
  whole.Step({0, 11 * kWidth});
  whole.ReadWhole();
  EXPECT_EQ(Matrices(whole.Alternated()).size(), 2u);
}

TEST(AlternateProductsProperty, AnySlicesKeepTheResult) {
  int changed = 0;
  for (uint64_t seed = 0; seed < 12; ++seed) {
    Recurrence r(seed, kWidth, 10 * kWidth);
    const int64_t grid = r.Draw(0, 3) == 0 ? kWidth / 2 : kWidth, steps = r.Draw(2, 4);
    for (int64_t step = 0; step < steps; ++step) {
      std::vector<int64_t> starts;
      for (int64_t i = r.Draw(1, 5); i > 0; --i) starts.push_back(grid * r.Draw(0, 9));
      r.Step(starts);
    }
    changed += static_cast<int64_t>(Matrices(r.Alternated()).size()) > steps;
    if (::testing::Test::HasFailure()) FAIL() << "seed " << seed;
  }
  EXPECT_GE(changed, 3);
}

}  // namespace
}  // namespace heddle::graph
