// Rows that are said to be independent are, and nothing that models of tables are made of mixes them.
#include "compiler/graph/passes/independent_rows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <limits>
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

constexpr int64_t kChainRows = 4;

// A chain of operators over a matrix, one of whose dimensions counts rows.
class Chain {
 public:
  explicit Chain(TestRng& rng) : rng_(rng) {
    width_ = Pick(2, 5);
    v_ = b_.Input("x", {DType::kF32, {kChainRows, width_}});
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
        const std::vector<int64_t> first(static_cast<size_t>(kChainRows), 0);
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
        const Shape wide = at_ == 0 ? Shape{kChainRows, 1, width_} : Shape{width_, 1, kChainRows};
        const ValueId reshaped = *b_.Add(OpKind::kReshape, {v_}, {{"shape", wide}}, "wide");
        return Add(OpKind::kReduceSum, {reshaped}, {{"axes", Shape{1}}, {"keepdims", int64_t{0}}});
      }
      case 10:
        return Add(OpKind::kExpand, {Most()}, {{"shape", ShapeOf(kChainRows, Pick(2, 5))}});
      default:
        return Mix(kind - 11);
    }
  }

  void Mix(int kind) {
    const int64_t rows_axis = at_;
    if (Pick(0, 2) != 0) return;  // most chains mix nothing
    mixes_ = true;
    if (kind == 0) return Add(OpKind::kSoftmax, {v_}, {{"axes", Shape{rows_axis}}});
    if (kind == 1) return Add(OpKind::kAdd, {v_, Random(ShapeOf(kChainRows, width_))});
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
  const size_t bytes = data.bytes->size() / static_cast<size_t>(kChainRows);
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
    for (int64_t row = 0; row < kChainRows; ++row) {
      const int64_t from[] = {2, 0, 3, 1};
      ASSERT_EQ(Row(z, row), Row(y, from[row])) << "seed " << seed << "\n" << Print(graph);
    }
  }
  EXPECT_GT(independent, 100);
  EXPECT_GT(mixed, 50);
}

// One operator of each kind below, over a tensor of three dimensions, of which any may count the rows. The same seed makes the same
// operator for any number of rows.
class OneOperator {
 public:
  enum Kind {
    kOneHot,
    kTopK,
    kCumSum,
    kPad,
    kSlice,
    kNormalize,
    kBatchNorm,
    kProduct,
    kProductOfTwo,
    kPick,
    kLookUp,
    kForest,
    kKinds
  };

  OneOperator(Kind kind, uint64_t seed, int64_t rows) : rng_(seed), seed_(seed), rows_(rows) {
    const int64_t first = Pick(2, 3), second = Pick(2, 3);
    const ValueId x = b_.Input("x", {DType::kF32, {rows, first, second}});
    at_ = Pick(0, 2);
    Shape order = {1, 2};
    order.insert(order.begin() + at_, 0);
    v_ = Add(OpKind::kTranspose, {x}, {{"perm", order}});
    landing_ = at_;
    Apply(kind, x);
  }

  // The rows stand in front, if the result has any.
  Graph Make() {
    const Shape& shape = b_.Type(v_).shape;
    if (landing_ >= 0 && shape[static_cast<size_t>(landing_)] == rows_) {
      Shape order = {landing_};
      for (int64_t d = 0; d < std::ssize(shape); ++d) {
        if (d != landing_) order.push_back(d);
      }
      v_ = Add(OpKind::kTranspose, {v_}, {{"perm", order}});
    }
    return b_.Build({{"y", v_}}).value();
  }
  // Whether a row of the result depends on other rows, or on its number.
  bool mixes() const { return mixes_; }

 private:
  int64_t Pick(int64_t from, int64_t to) {
    return from + static_cast<int64_t>(rng_() % static_cast<uint64_t>(to - from + 1));
  }
  ValueId Add(OpKind kind, std::vector<ValueId> inputs, Attrs attrs = {}) {
    return b_.Add(kind, std::move(inputs), std::move(attrs), "v").value();
  }
  int64_t Extent(int64_t axis) const { return b_.Type(v_).shape[static_cast<size_t>(axis)]; }
  // A number of a dimension, from the front or from the back.
  int64_t Axis(int64_t axis, int64_t rank) { return Pick(0, 1) == 0 ? axis : axis - rank; }
  // It has its own generator, because its shape may depend on the number of rows.
  TensorData Random(const Shape& shape) {
    TestRng rng(seed_ * 16 + ++constants_);
    return RandomTensor(rng, {DType::kF32, shape});
  }
  ValueId Constant(TensorData data) { return b_.Constant("c", std::move(data)); }
  // Whole numbers from -2 to 2.
  ValueId Whole(ValueId x) {
    const ValueId three = Constant(Filled({DType::kF32, {}}, 3));
    return Add(OpKind::kCast, {Add(OpKind::kMul, {x, three})}, {{"to", std::string("i64")}});
  }

  void Apply(Kind kind, ValueId x) {
    const int64_t axis = Pick(0, 2);
    mixes_ = axis == at_;
    switch (kind) {
      case kOneHot: {
        const int64_t added = Pick(0, 3);
        mixes_ = false;
        landing_ = at_ + (added <= at_ ? 1 : 0);
        v_ = Add(OpKind::kOneHot, {Whole(v_), Constant(FromElements<float>({2}, {0, 1}))},
                 {{"axis", Axis(added, 4)}, {"depth", Pick(2, 3)}});
        return;
      }
      case kTopK: {
        const int64_t count = mixes_ ? rows_ : Pick(1, Extent(axis));
        v_ = Add(OpKind::kTopK, {v_},
                 {{"axis", Axis(axis, 3)}, {"k", count}, {"largest", Pick(0, 1)}});
        return;
      }
      case kCumSum:
        v_ = Add(OpKind::kCumSum, {v_},
                 {{"axis", Axis(axis, 3)}, {"exclusive", Pick(0, 1)}, {"reverse", Pick(0, 1)}});
        return;
      case kPad: {  // rows move on by one
        Shape begin(3, 0), end(3, 0);
        begin[static_cast<size_t>(axis)] = 1;
        end[static_cast<size_t>(axis)] = mixes_ ? 0 : Pick(0, 1);
        const std::string mode = Pick(0, 1) == 0 ? "constant" : "edge";
        v_ = Add(OpKind::kPad, {v_}, {{"begin", begin}, {"end", end}, {"mode", mode}});
        if (!mixes_) return;
        Shape sizes = b_.Type(v_).shape;
        sizes[static_cast<size_t>(at_)] = rows_;
        v_ = Add(OpKind::kSlice, {v_},
                 {{"starts", Shape(3, 0)}, {"steps", Shape(3, 1)}, {"sizes", sizes}});
        return;
      }
      case kSlice: {  // rows from the last to the first; some elements of others
        Shape starts(3, 0), steps(3, 1), sizes = b_.Type(v_).shape;
        const auto d = static_cast<size_t>(axis);
        starts[d] = mixes_ ? rows_ - 1 : Pick(0, Extent(axis) - 1);
        steps[d] = mixes_ || Pick(0, 1) == 0 ? -1 : 1;
        if (!mixes_) sizes[d] = steps[d] < 0 ? starts[d] + 1 : sizes[d] - starts[d];
        v_ = Add(OpKind::kSlice, {v_}, {{"starts", starts}, {"steps", steps}, {"sizes", sizes}});
        return;
      }
      case kNormalize: {
        Shape axes = {Axis(axis, 3)};
        if (const int64_t other = Pick(0, 2); other != axis) {
          axes.push_back(other);
          mixes_ |= other == at_;
        }
        v_ = Add(OpKind::kNormalize, {v_}, {{"axes", axes}});
        return;
      }
      case kBatchNorm: {
        std::vector<ValueId> operands = {v_};
        for (int k = 0; k < 3; ++k) operands.push_back(Constant(Random({Extent(axis)})));
        std::vector<double> variance = ToDoubles(Random({Extent(axis)}));
        for (double& value : variance) value = 0.5 + value * value;
        operands.push_back(Constant(FromDoubles(variance, {Extent(axis)}, DType::kF32)));
        v_ = Add(OpKind::kBatchNorm, operands, {{"axis", axis}});
        return;
      }
      case kProduct:
        return Product();
      case kProductOfTwo: {  // of the matrices with their transposes
        mixes_ = at_ != 0;
        v_ = Add(OpKind::kMatmul, {v_, Add(OpKind::kTranspose, {v_}, {{"perm", Shape{0, 2, 1}}})});
        return;
      }
      case kPick: {  // rows in another order; others in a matrix of places
        std::vector<int64_t> places;
        Shape shape;
        if (mixes_) {
          for (int64_t row = rows_; row-- > 0;) places.push_back(row);
          shape = {rows_};
        } else {
          shape = Shape(static_cast<size_t>(Pick(0, 2)), 2);
          for (int64_t k = int64_t{1} << shape.size(); k > 0; --k)
            places.push_back(Pick(0, Extent(axis) - 1));
          if (at_ > axis) landing_ = at_ + std::ssize(shape) - 1;
        }
        v_ = Add(OpKind::kGather, {v_, Constant(FromElements(shape, places))},
                 {{"axis", Axis(axis, 3)}});
        return;
      }
      case kLookUp: {  // in a table, at the places that the elements are
        mixes_ = false;
        const int64_t of = Pick(0, 1);
        landing_ = of + at_;
        v_ = Add(OpKind::kGather, {Constant(Random({5, 5})), Whole(v_)}, {{"axis", Axis(of, 2)}});
        return;
      }
      case kForest:
        return Forest(x);
      case kKinds:
        break;
    }
  }

  // With a matrix, or with one for each first index, on either side.
  void Product() {
    const bool of_each = Pick(0, 1) == 0, left = Pick(0, 1) == 0;
    const int64_t summed = left ? 1 : 2, width = Pick(2, 3);
    mixes_ = at_ == summed || (of_each && at_ == 0);
    if (at_ == summed) landing_ = -1;
    Shape shape = left ? Shape{width, Extent(1)} : Shape{Extent(2), width};
    if (of_each) shape.insert(shape.begin(), Extent(0));
    const ValueId matrix = Constant(Random(shape));
    v_ = left ? Add(OpKind::kMatmul, {matrix, v_}) : Add(OpKind::kMatmul, {v_, matrix});
  }

  // Two trees of two levels ask the elements of a row, or the rows of an element.
  void Forest(ValueId x) {
    constexpr int64_t kTrees = 2;
    const Shape& shape = b_.Type(x).shape;
    const int64_t width = shape[1] * shape[2];
    v_ = Add(OpKind::kReshape, {x}, {{"shape", Shape{rows_, width}}});
    mixes_ = Pick(0, 3) == 0;
    landing_ = mixes_ ? -1 : 2;
    if (!mixes_) v_ = Add(OpKind::kTranspose, {v_}, {{"perm", Shape{1, 0}}});
    const bool walk = Pick(0, 1) == 0;
    const int64_t nodes = walk ? 7 : 3, leaves = walk ? 7 : 4;
    std::vector<int32_t> columns, left;
    std::vector<float> thresholds;
    for (int64_t k = 0; k < kTrees * nodes; ++k) {
      const int64_t node = k % nodes;
      const bool asks = node < 3;
      columns.push_back(static_cast<int32_t>(Pick(0, 3)));
      thresholds.push_back(asks ? static_cast<float>(Pick(-2, 2)) / 4
                                : std::numeric_limits<float>::quiet_NaN());
      left.push_back(static_cast<int32_t>(asks ? 2 * node + 1 : node));
    }
    const Shape tables = {1, kTrees, nodes};
    std::vector<ValueId> operands = {v_, Constant(FromElements(tables, columns)),
                                     Constant(FromElements(tables, thresholds))};
    if (walk) operands.push_back(Constant(FromElements(tables, left)));
    operands.push_back(Constant(Random({1, kTrees, leaves, walk ? Pick(1, 2) : 1})));
    v_ = walk ? Add(OpKind::kForestWalk, operands, {{"steps", int64_t{2}}})
              : Add(OpKind::kForestSelect, operands, {{"depth", int64_t{2}}});
  }

  TestRng rng_;
  uint64_t seed_, constants_ = 0;
  int64_t rows_;
  GraphBuilder b_;
  ValueId v_ = -1;
  int64_t at_ = 0;       // the dimension of the rows in the operand
  int64_t landing_ = 0;  // and in the result; -1: it has none
  bool mixes_ = false;
};

// Some rows of a tensor.
TensorData RowsOf(const TensorData& data, int64_t begin, int64_t count) {
  TensorType type = data.type;
  const size_t row = data.bytes->size() / static_cast<size_t>(type.shape[0]);
  type.shape[0] = count;
  return {type, SharedBytes::Of(std::string(data.bytes->substr(static_cast<size_t>(begin) * row,
                                                               static_cast<size_t>(count) * row)))};
}

// Rows in several parts give what all rows together give.
TEST(IndependentRows, OperatorsOverAnyDimension) {
  constexpr int64_t kAll = 7;  // no other dimension has as many
  constexpr int kSeeds = 60;
  for (int kind = 0; kind < OneOperator::kKinds; ++kind) {
    int independent = 0, mixed = 0;
    for (uint64_t seed = 0; seed < kSeeds; ++seed) {
      const auto of = [&](int64_t rows) {
        return OneOperator(static_cast<OneOperator::Kind>(kind), seed, rows);
      };
      OneOperator all = of(kAll);
      const Graph graph = all.Make();
      const bool found = HasIndependentRows(graph);
      ASSERT_EQ(found, !all.mixes()) << "kind " << kind << ", seed " << seed << "\n"
                                     << Print(graph);
      ++(found ? independent : mixed);
      if (!found) continue;
      TestRng rng(seed);
      const TensorData x = RandomInputs(rng, graph)[0], y = Evaluated(graph, x);
      for (const int64_t part : {1, 3}) {
        for (int64_t begin = 0; begin < kAll; begin += part) {
          const int64_t count = std::min(part, kAll - begin);
          const TensorData alone = Evaluated(of(count).Make(), RowsOf(x, begin, count));
          const TensorData wanted = RowsOf(y, begin, count);
          ASSERT_EQ(alone.type, wanted.type);
          ASSERT_EQ(*alone.bytes, *wanted.bytes)
              << count << " rows from " << begin << ", seed " << seed << "\n"
              << Print(graph);
        }
      }
    }
    EXPECT_GT(independent, kSeeds / 6) << "kind " << kind;
    const bool never = kind == OneOperator::kOneHot || kind == OneOperator::kLookUp;
    EXPECT_EQ(mixed > kSeeds / 12, !never) << "kind " << kind;
  }
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

// A model of rows x [4, 3] that ends with a value v.
template <typename Build>
bool AreIndependent(Build build) {
  GraphBuilder b;
  const ValueId x = b.Input("x", {DType::kF32, {kChainRows, 3}});
  const ValueId v = build(b, x);
  return HasIndependentRows(b.Build({{"y", v}}).value());
}

TEST(IndependentRows, ALabelOfAnEinsumCountsThem) {
  const auto einsum = [](const std::string& terms, const std::string& result) {
    return AreIndependent([&](GraphBuilder& b, ValueId x) {
      return b.Add(OpKind::kEinsum, {x, x}, {{"terms", terms}, {"result", result}}, "v").value();
    });
  };
  EXPECT_TRUE(einsum("ij,ij", "i"));
  EXPECT_TRUE(einsum("ij,ik", "ijk"));
  EXPECT_FALSE(einsum("ij,kj", "ik")) << "each row by each";
  EXPECT_FALSE(einsum("ij,ij", "j")) << "a sum of rows";
}

TEST(IndependentRows, EachRowMayPickFromItself) {
  const auto pick = [](int64_t axis, bool by_rows) {
    return AreIndependent([&](GraphBuilder& b, ValueId x) {
      ValueId places =
          b.Add(OpKind::kTopK, {x}, {{"axis", int64_t{1}}, {"k", int64_t{3}}}, "t").value();
      if (!by_rows) places = b.Constant("p", FromInts({0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2}));
      if (!by_rows)
        places = b.Add(OpKind::kReshape, {places}, {{"shape", Shape{kChainRows, 3}}}, "p").value();
      return b.Add(OpKind::kGatherElements, {x, places}, {{"axis", axis}}, "v").value();
    });
  };
  EXPECT_TRUE(pick(1, true));
  EXPECT_FALSE(pick(0, true));
  EXPECT_FALSE(pick(1, false));
}

// Rows that are filled with a number are alike for any number of rows, and their sum is not.
TEST(IndependentRows, FilledRowsAreAlike) {
  const auto filled = [](const Shape& shape, auto use) {
    return AreIndependent([&](GraphBuilder& b, ValueId x) {
      const ValueId one = b.Constant("one", Filled({DType::kF32, {}}, 1));
      const ValueId all = b.Add(OpKind::kExpand, {one}, {{"shape", shape}}, "all").value();
      return b.Add(OpKind::kMul, {x, use(b, all)}, {}, "v").value();
    });
  };
  const auto itself = [](GraphBuilder&, ValueId all) { return all; };
  const auto added = [](GraphBuilder& b, ValueId all) {
    return b.Add(OpKind::kReduceSum, {all}, {{"axes", Shape{0}}, {"keepdims", int64_t{1}}}, "sum")
        .value();
  };
  EXPECT_TRUE(filled({kChainRows, 3}, itself));
  EXPECT_TRUE(filled({kChainRows, 1}, itself));
  EXPECT_TRUE(filled({kChainRows, 1}, [](GraphBuilder& b, ValueId all) {
    const ValueId w = b.Constant("w", FromElements<float>({1, 3}, {1, 2, 3}));
    return b.Add(OpKind::kMatmul, {all, w}, {}, "product").value();
  }));
  EXPECT_FALSE(filled({kChainRows, 3}, added));
  EXPECT_TRUE(filled({2, 3}, added)) << "no rows of the model";
  EXPECT_FALSE(filled({kChainRows, 3}, [](GraphBuilder& b, ValueId all) {
    return b.Add(OpKind::kCumSum, {all}, {{"axis", int64_t{0}}}, "numbers").value();
  }));
}

}  // namespace
}  // namespace heddle::graph
