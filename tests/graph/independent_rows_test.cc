// Rows that are said to be independent are, and nothing that models of tables are made of mixes them.
#include "compiler/graph/passes/independent_rows.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "compiler/graph/core/graph_builder.h"
#include "compiler/graph/core/tensor_data.h"
#include "compiler/graph/passes/evaluate.h"
#include "tests/graph/random_graph.h"

namespace heddle::graph {
namespace {

using ir::DType;

constexpr int64_t kRows = 4;

// A chain of operators over a matrix, one of whose dimensions counts rows.
class Chain {
 public:
  explicit Chain(TestRng& rng) : rng_(rng) {
    width_ = Pick(2, 5);
    v_ = b_.Input("x", {DType::kF32, {kRows, width_}});
  }

  Graph Make(int steps) {
    for (int k = 0; k < steps; ++k) Step(static_cast<int>(Pick(0, 13)));
    if (at_ == 1) Transpose();
    return *b_.Build({{"y", v_}});
  }
  // Whether some step made a row depend on others, or on its number.
  bool mixes() const { return mixes_; }

 private:
  int64_t Pick(int64_t from, int64_t to) {
    return from + static_cast<int64_t>(rng_() % static_cast<uint64_t>(to - from + 1));
  }
  void Add(OpKind kind, std::vector<ValueId> inputs, Attrs attrs = {}) {
    v_ = *b_.Add(kind, std::move(inputs), std::move(attrs), "v");
    width_ = b_.Type(v_).shape[static_cast<size_t>(1 - at_)];
  }
  Shape ShapeOf(int64_t rows, int64_t width) const {
    return at_ == 0 ? Shape{rows, width} : Shape{width, rows};
  }
  ValueId Random(const Shape& shape) {
    return b_.Constant("c", RandomTensor(rng_, {DType::kF32, shape}));
  }
  ValueId Numbers(const std::vector<int64_t>& numbers) {
    return b_.Constant("n", FromInts(numbers));
  }
  void Transpose() {
    at_ = 1 - at_;
    Add(OpKind::kTranspose, {v_}, {{"perm", Shape{1, 0}}});
  }
  // The maximum of each row, with both dimensions.
  ValueId Most() {
    return *b_.Add(OpKind::kReduceMax, {v_}, {{"axes", Shape{1 - at_}}, {"keepdims", int64_t{1}}},
                   "most");
  }

  void Step(int kind) {
    const int64_t rows_axis = at_, other = 1 - at_;
    switch (kind) {
      case 0:
        return Add(OpKind::kRelu, {v_});
      case 1:
        return Add(OpKind::kAdd, {v_, Random(ShapeOf(1, width_))});
      case 2: {  // a constant whose rows are alike
        const TensorData row = RandomTensor(rng_, {DType::kF32, ShapeOf(1, width_)});
        const std::vector<int64_t> first(static_cast<size_t>(kRows), 0);
        const TensorData operands[] = {row, FromInts(first)};
        const TensorData all = *EvaluateOp(OpKind::kGather, {{"axis", rows_axis}}, operands);
        return Add(OpKind::kMul, {v_, b_.Constant("rows", all)});
      }
      case 3:
        return Transpose();
      case 4:
        return Add(OpKind::kSoftmax, {v_}, {{"axes", Shape{other}}});
      case 5:
        return Add(OpKind::kSub, {v_, Most()});
      case 6: {
        const int64_t width = Pick(2, 5);
        if (at_ == 0) return Add(OpKind::kMatmul, {v_, Random({width_, width})});
        return Add(OpKind::kMatmul, {Random({width, width_}), v_});
      }
      case 7: {
        std::vector<int64_t> places(static_cast<size_t>(Pick(1, 5)));
        for (int64_t& place : places) place = Pick(0, width_ - 1);
        return Add(OpKind::kGather, {v_, Numbers(places)}, {{"axis", other}});
      }
      case 8:
        if (width_ > 20) return;
        return Add(OpKind::kConcat, {v_, v_}, {{"axis", other}});
      case 9: {  // a dimension more, and less
        const Shape wide = at_ == 0 ? Shape{kRows, 1, width_} : Shape{width_, 1, kRows};
        const ValueId reshaped = *b_.Add(OpKind::kReshape, {v_}, {{"shape", wide}}, "wide");
        return Add(OpKind::kReduceSum, {reshaped}, {{"axes", Shape{1}}, {"keepdims", int64_t{0}}});
      }
      case 10:
        return Add(OpKind::kExpand, {Most()}, {{"shape", ShapeOf(kRows, Pick(2, 5))}});
      default:
        return Mix(kind - 11);
    }
  }

  void Mix(int kind) {
    const int64_t rows_axis = at_;
    if (Pick(0, 2) != 0) return;  // most chains mix nothing
    mixes_ = true;
    if (kind == 0) return Add(OpKind::kSoftmax, {v_}, {{"axes", Shape{rows_axis}}});
    if (kind == 1) return Add(OpKind::kAdd, {v_, Random(ShapeOf(kRows, width_))});
    Add(OpKind::kGather, {v_, Numbers({3, 2, 1, 0})}, {{"axis", rows_axis}});
  }

  TestRng& rng_;
  GraphBuilder b_;
  ValueId v_;
  int64_t width_;
  int at_ = 0;  // the dimension of the rows
  bool mixes_ = false;
};

std::string Row(const TensorData& data, int64_t row) {
  const size_t bytes = data.bytes->size() / static_cast<size_t>(kRows);
  return std::string(data.bytes->substr(static_cast<size_t>(row) * bytes, bytes));
}

TensorData Evaluated(const Graph& graph, const TensorData& x) {
  return EvaluateGraph(graph, {&x, 1}).value()[0];
}

TEST(IndependentRows, RandomChains) {
  int independent = 0, mixed = 0;
  for (uint64_t seed = 0; seed < 400; ++seed) {
    TestRng rng(seed);
    Chain chain(rng);
    const Graph graph = chain.Make(static_cast<int>(1 + seed % 8));
    const bool found = HasIndependentRows(graph);
    ASSERT_EQ(found, !chain.mixes()) << "seed " << seed << "\n" << Print(graph);
    ++(found ? independent : mixed);
    if (!found) continue;
    // Rows in another order give the same rows in that order.
    const TensorData x = RandomInputs(rng, graph)[0];
    std::string turned;
    for (int64_t row : {2, 0, 3, 1}) turned += Row(x, row);
    const TensorData y = Evaluated(graph, x),
                     z = Evaluated(graph, {x.type, SharedBytes::Of(turned)});
    for (int64_t row = 0; row < kRows; ++row) {
      const int64_t from[] = {2, 0, 3, 1};
      ASSERT_EQ(Row(z, row), Row(y, from[row])) << "seed " << seed << "\n" << Print(graph);
    }
  }
  EXPECT_GT(independent, 100);
  EXPECT_GT(mixed, 50);
}

// y for one operator on x f32 [rows, 3].
bool OfOne(int64_t rows, OpKind kind, const Attrs& attrs,
           const std::vector<TensorData>& others = {}) {
  GraphBuilder b;
  std::vector<ValueId> inputs{b.Input("x", {DType::kF32, {rows, 3}})};
  for (const TensorData& data : others) inputs.push_back(b.Constant("c", data));
  return HasIndependentRows(*b.Build({{"y", *b.Add(kind, inputs, attrs, "y")}}));
}

TEST(IndependentRows, WhatDoesNotKeepTheRowsInFront) {
  EXPECT_TRUE(OfOne(2, OpKind::kReduceMax, {{"axes", Shape{1}}, {"keepdims", int64_t{0}}}));
  EXPECT_FALSE(OfOne(2, OpKind::kReduceMax, {{"axes", Shape{0}}, {"keepdims", int64_t{1}}}));
  EXPECT_FALSE(OfOne(2, OpKind::kTranspose, {{"perm", Shape{1, 0}}}));
  EXPECT_FALSE(OfOne(3, OpKind::kTranspose, {{"perm", Shape{1, 0}}}));
  EXPECT_FALSE(OfOne(2, OpKind::kReshape, {{"shape", Shape{3, 2}}}));
  EXPECT_FALSE(OfOne(2, OpKind::kReshape, {{"shape", Shape{6}}}));
  EXPECT_TRUE(OfOne(2, OpKind::kReshape, {{"shape", Shape{2, 1, 3}}}));
  EXPECT_FALSE(OfOne(2, OpKind::kReshape, {{"shape", Shape{1, 2, 3}}}));
  EXPECT_FALSE(OfOne(2, OpKind::kTile, {{"repeats", Shape{2, 1}}}));
  EXPECT_TRUE(OfOne(2, OpKind::kTile, {{"repeats", Shape{1, 2}}}));
  // One row is broadcast to five.
  EXPECT_FALSE(OfOne(1, OpKind::kAdd, {}, {Filled({DType::kF32, {5, 3}}, 1)}));
  EXPECT_TRUE(OfOne(5, OpKind::kAdd, {}, {Filled({DType::kF32, {5, 3}}, 1)}));
}

TEST(IndependentRows, InputsAndOutputsCountTheSameRows) {
  GraphBuilder b;
  const ValueId x = b.Input("x", {DType::kF32, {2, 3}}), s = b.Input("s", {DType::kF32, {}});
  EXPECT_FALSE(HasIndependentRows(*b.Build({{"y", *b.Add(OpKind::kMul, {x, s}, {}, "y")}})));
  GraphBuilder c;
  const ValueId one = c.Input("one", {DType::kF32, {1, 3}}),
                many = c.Input("many", {DType::kF32, {2, 3}});
  EXPECT_FALSE(HasIndependentRows(*c.Build({{"y", *c.Add(OpKind::kMul, {one, many}, {}, "y")}})));
  GraphBuilder d;
  d.Input("x", {DType::kF32, {2, 3}});
  const ValueId k = d.Constant("k", Filled({DType::kF32, {2, 3}}, 1));
  EXPECT_FALSE(HasIndependentRows(*d.Build({{"y", k}}))) << "an output that no row decides";
}

}  // namespace
}  // namespace heddle::graph
