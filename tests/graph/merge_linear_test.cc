// Linear operators one after another are one product, unless that loses accuracy or costs work.
#include "compiler/graph/passes/merge_linear.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "compiler/graph/core/graph_builder.h"
#include "compiler/graph/core/operator.h"
#include "compiler/graph/core/tensor_data.h"
#include "compiler/graph/passes/evaluate.h"
#include "tests/graph/random_graph.h"

namespace heddle::graph {
namespace {

using ir::DType;

double AllFlops(const Graph& graph) {
  double flops = 0;
  for (const Node& node : graph.nodes) flops += Flops(graph, node);
  return flops;
}

double Apart(const Graph& graph, const Graph& merged, uint64_t seed) {
  TestRng rng(seed);
  const std::vector<TensorData> inputs = RandomInputs(rng, graph);
  return Difference(*EvaluateGraph(graph, inputs), *EvaluateGraph(merged, inputs));
}

TEST(MergeLinear, RandomChainsKeepTheirResults) {
  int merged_some = 0;
  for (uint64_t seed = 0; seed < 400; ++seed) {
    TestRng rng(seed);
    const auto pick = [&](int64_t from, int64_t to) {
      return from + static_cast<int64_t>(rng() % static_cast<uint64_t>(to - from + 1));
    };
    GraphBuilder b;
    int64_t width = pick(1, 6);
    const DType dtype = pick(0, 3) == 0 ? DType::kF64 : DType::kF32;
    ValueId v = b.Input("x", {dtype, {4, width}});
    std::optional<ValueId> second;  // another reader of something in the chain
    for (int64_t steps = pick(2, 7); steps > 0; --steps) {
      const Shape shapes[] = {{width}, {1, width}, {1}, {}, {4, 1}, {4, width}};
      const int64_t kind = pick(0, 6);
      if (kind >= 4) {
        const int64_t next = pick(1, 6);
        const ValueId matrix = b.Constant("w", RandomTensor(rng, {dtype, {width, next}}));
        v = *b.Add(OpKind::kMatmul, {v, matrix}, {}, "product");
        width = next;
      } else {
        constexpr OpKind kKinds[] = {OpKind::kMul, OpKind::kAdd, OpKind::kSub, OpKind::kDiv};
        TensorData number = RandomTensor(rng, {dtype, shapes[pick(0, 5)]});
        if (kind == 3) {  // away from 0
          std::vector<double> values = ToDoubles(number);
          for (double& value : values) value += value < 0 ? -0.5 : 0.5;
          number = FromDoubles(values, number.type.shape, dtype);
        }
        std::vector<ValueId> operands{v, b.Constant("c", number)};
        if (kind != 3 && pick(0, 1) == 0) std::swap(operands[0], operands[1]);
        v = *b.Add(kKinds[kind], operands, {}, "step");
      }
      if (pick(0, 9) == 0) second = *b.Add(OpKind::kTanh, {v}, {}, "second");
    }
    std::vector<std::pair<std::string, ValueId>> outputs{{"y", v}};
    if (second) outputs.emplace_back("z", *second);
    const Graph graph = *b.Build(outputs);
    const auto merged = MergeLinear(graph);
    ASSERT_TRUE(merged.ok()) << merged.status();
    ASSERT_TRUE(CheckGraph(*merged).ok()) << CheckGraph(*merged);
    EXPECT_LE(Apart(graph, *merged, seed), dtype == DType::kF32 ? 2e-5 : 1e-13)
        << "seed " << seed << "\n"
        << Print(graph) << "\nafter\n"
        << Print(*merged);
    EXPECT_LE(AllFlops(*merged), AllFlops(graph) + 4.0 * 6 * 7)
        << "an offset more for each product";
    merged_some += merged->nodes.size() < graph.nodes.size();
  }
  EXPECT_GT(merged_some, 100);
}

// relu((x - mean) * factor) W, with or without the relu.
Graph Scaled(double mean, double factor, bool between = false) {
  GraphBuilder b;
  TestRng rng(1);
  ValueId v = b.Input("x", {DType::kF32, {5, 3}});
  const auto vector = [&](double value) {
    return b.Constant("c", FromDoubles({value, value / 2, -value}, {3}, DType::kF32));
  };
  v = *b.Add(OpKind::kSub, {v, vector(mean)}, {}, "centred");
  v = *b.Add(OpKind::kMul, {v, vector(factor)}, {}, "scaled");
  if (between) v = *b.Add(OpKind::kRelu, {v}, {}, "relu");
  const ValueId w = b.Constant("w", RandomTensor(rng, {DType::kF32, {3, 2}}));
  return *b.Build({{"y", *b.Add(OpKind::kMatmul, {v, w}, {}, "product")}});
}

TEST(MergeLinear, AScalerBeforeALinearModelIsPartOfIt) {
  const Graph graph = Scaled(2, 3), merged = *MergeLinear(graph);
  ASSERT_EQ(merged.nodes.size(), 2u) << Print(merged);
  EXPECT_EQ(merged.nodes[0].kind, OpKind::kMatmul);
  EXPECT_EQ(merged.nodes[1].kind, OpKind::kAdd);
  EXPECT_LE(Apart(graph, merged, 1), 1e-5);
  EXPECT_EQ(MergeLinear(Scaled(2, 3, true))->nodes.size(), 4u) << "a relu is not linear";
}

TEST(MergeLinear, AnOffsetThatWouldCancelStays) {
  const Graph graph = Scaled(1000, 3), merged = *MergeLinear(graph);
  EXPECT_EQ(CountOps(merged, OpKind::kMul), 0) << Print(merged);
  EXPECT_EQ(CountOps(merged, OpKind::kSub), 1);
  // Without scales, nothing tells how large an offset is.
  GraphBuilder b;
  TestRng rng(1);
  const ValueId x = b.Input("x", {DType::kF32, {5, 3}});
  const ValueId centred = *b.Add(
      OpKind::kSub, {x, b.Constant("c", FromDoubles({1, 2, 3}, {3}, DType::kF32))}, {}, "centred");
  const ValueId w = b.Constant("w", RandomTensor(rng, {DType::kF32, {3, 2}}));
  const Graph plain = *b.Build({{"y", *b.Add(OpKind::kMatmul, {centred, w}, {}, "product")}});
  EXPECT_EQ(MergeLinear(plain)->nodes.size(), 2u);
}

// x [5, n] V [n, k] W [k, m]
Graph TwoProducts(int64_t n, int64_t k, int64_t m) {
  GraphBuilder b;
  TestRng rng(1);
  ValueId v = b.Input("x", {DType::kF32, {5, n}});
  v = *b.Add(OpKind::kMatmul, {v, b.Constant("v", RandomTensor(rng, {DType::kF32, {n, k}}))}, {},
             "first");
  v = *b.Add(OpKind::kAdd, {v, b.Constant("c", RandomTensor(rng, {DType::kF32, {k}}))}, {},
             "offset");
  v = *b.Add(OpKind::kMatmul, {v, b.Constant("w", RandomTensor(rng, {DType::kF32, {k, m}}))}, {},
             "second");
  return *b.Build({{"y", v}});
}

TEST(MergeLinear, TwoMatricesAreOneIfThatIsLessWork) {
  const Graph wide = TwoProducts(10, 8, 2), merged = *MergeLinear(wide);
  EXPECT_EQ(CountOps(merged, OpKind::kMatmul), 1) << Print(merged);
  EXPECT_LT(AllFlops(merged), AllFlops(wide));
  EXPECT_LE(Apart(wide, merged, 1), 1e-5);
  EXPECT_EQ(CountOps(*MergeLinear(TwoProducts(10, 1, 10)), OpKind::kMatmul), 2)
      << "a bottleneck stays";
}

// Two scalers before products with one matrix [rows, columns].
Graph SharedMatrix(int64_t rows, int64_t columns) {
  GraphBuilder b;
  TestRng rng(1);
  const ValueId x = b.Input("x", {DType::kF32, {5, rows}});
  const ValueId w = b.Constant("w", RandomTensor(rng, {DType::kF32, {rows, columns}}));
  std::vector<std::pair<std::string, ValueId>> outputs;
  for (const char* name : {"y", "z"}) {
    const ValueId factors = b.Constant("f", RandomTensor(rng, {DType::kF32, {rows}}));
    const ValueId scaled = *b.Add(OpKind::kMul, {x, factors}, {}, "scaled");
    outputs.emplace_back(name, *b.Add(OpKind::kMatmul, {scaled, w}, {}, "product"));
  }
  return *b.Build(outputs);
}

TEST(MergeLinear, ALargeSharedMatrixIsNotCopied) {
  const Graph small = SharedMatrix(128, 128), merged = *MergeLinear(small);
  EXPECT_EQ(CountOps(merged, OpKind::kMul), 0) << Print(merged);
  EXPECT_LE(Apart(small, merged, 1), 1e-4);
  EXPECT_EQ(CountOps(*MergeLinear(SharedMatrix(128, 129)), OpKind::kMul), 2);
  // Two blocks of rows that read it merge alike.
  Graph blocks = SharedMatrix(128, 129);
  blocks.tables.blocks = {5, 1};
  EXPECT_EQ(CountOps(*MergeLinear(blocks), OpKind::kMul), 0);
}

TEST(MergeLinear, WhatIsNotFiniteStays) {
  EXPECT_EQ(MergeLinear(Scaled(2, std::numeric_limits<double>::infinity()))->nodes.size(), 3u);
}

}  // namespace
}  // namespace heddle::graph
