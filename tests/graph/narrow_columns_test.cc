// What nobody reads is not computed: random pipelines, and those of tables that people build.
#include "compiler/graph/passes/narrow_columns.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "compiler/graph/core/graph_builder.h"
#include "compiler/graph/core/operator.h"
#include "compiler/graph/core/tensor_data.h"
#include "compiler/graph/ops/op_util.h"
#include "compiler/graph/passes/evaluate.h"
#include "compiler/graph/passes/passes.h"
#include "tests/graph/random_graph.h"

namespace heddle::graph {
namespace {

using ir::DType;

constexpr int64_t kRows = 3;

// Elements that the nodes of these kinds compute, or all that do more than move.
int64_t Elements(const Graph& graph, const std::vector<OpKind>& kinds = {}) {
  int64_t elements = 0;
  for (const Node& node : graph.nodes) {
    const bool counts = kinds.empty() ? !Def(node.kind).OnlyMoves()
                                      : std::count(kinds.begin(), kinds.end(), node.kind) > 0;
    if (counts) elements += NumElements(graph.values[node.outputs[0]].type);
  }
  return elements;
}

void ExpectEqual(const Graph& graph, const Graph& narrow, uint64_t seed) {
  TestRng rng(seed);
  const std::vector<TensorData> inputs = RandomInputs(rng, graph);
  const auto expected = EvaluateGraph(graph, inputs), found = EvaluateGraph(narrow, inputs);
  ASSERT_TRUE(expected.ok()) << expected.status();
  ASSERT_TRUE(found.ok()) << found.status() << "\n" << Print(narrow);
  EXPECT_EQ(Difference(*expected, *found), 0) << "seed " << seed << "\n"
                                              << Print(graph) << "\nafter\n"
                                              << Print(narrow);
}

// Values of several widths over the same rows, and selections from them.
class Pipeline {
 public:
  explicit Pipeline(TestRng& rng) : rng_(rng) {
    values_.push_back(b_.Input("x", {DType::kF32, {kRows, Pick(2, 6)}}));
    values_.push_back(b_.Input("z", {DType::kF32, {kRows, Pick(2, 6)}}));
  }

  Graph Make(int steps) {
    for (int k = 0; k < steps; ++k) values_.push_back(Step(Pick(0, 12)));
    std::vector<std::pair<std::string, ValueId>> outputs{{"y", Selected(values_.back())}};
    if (Pick(0, 1) == 0) outputs.emplace_back("w", Selected(Any()));
    return *b_.Build(outputs);
  }

 private:
  int64_t Pick(int64_t from, int64_t to) {
    return from + static_cast<int64_t>(rng_() % static_cast<uint64_t>(to - from + 1));
  }
  ValueId Any() { return values_[static_cast<size_t>(Pick(0, std::ssize(values_) - 1))]; }
  ValueId Add(OpKind kind, std::vector<ValueId> inputs, Attrs attrs = {}) {
    return *b_.Add(kind, std::move(inputs), std::move(attrs), "v");
  }
  int64_t Width(ValueId v) const { return b_.Type(v).shape[1]; }
  ValueId Random(const Shape& shape) {
    return b_.Constant("c", RandomTensor(rng_, {DType::kF32, shape}));
  }
  ValueId Reshaped(ValueId v, const Shape& shape) {
    return Add(OpKind::kReshape, {v}, {{"shape", shape}});
  }
  // Some columns, in any order, some of them twice or from the end.
  ValueId Selected(ValueId v) {
    std::vector<int64_t> places(static_cast<size_t>(Pick(1, Width(v))));
    for (int64_t& place : places) place = Pick(-Width(v), Width(v) - 1);
    if (Pick(0, 1) == 0) std::sort(places.begin(), places.end());
    return Add(OpKind::kGather, {v, b_.Constant("places", FromInts(places))},
               {{"axis", Pick(0, 1) * 2 - 1}});
  }

  ValueId Step(int64_t kind) {
    const ValueId v = Any();
    const int64_t width = Width(v);
    if (width > 12) return Selected(v);
    const ValueId most =
        Add(OpKind::kReduceMax, {v}, {{"axes", Shape{1}}, {"keepdims", int64_t{1}}});
    switch (kind) {
      case 0:
        return Add(OpKind::kAdd, {v, Random({width})});
      case 1:
        return Add(OpKind::kMul, {v, Random({1, width})});
      case 2:
        return Add(OpKind::kConcat, {v, Any(), v}, {{"axis", int64_t{1}}});
      case 3: {  // a comparison with each category
        const int64_t categories = Pick(1, 4);
        const ValueId apart = Reshaped(v, {kRows, width, 1});
        const ValueId less = Add(OpKind::kLess, {apart, Random({categories})});
        const ValueId real = Add(OpKind::kCast, {less}, {{"to", std::string("f32")}});
        return Reshaped(real, {kRows, width * categories});
      }
      case 4: {  // products of pairs
        const ValueId pairs =
            Add(OpKind::kMul, {Reshaped(v, {kRows, width, 1}), Reshaped(v, {kRows, 1, width})});
        return Reshaped(pairs, {kRows, width * width});
      }
      case 5:
        return Add(OpKind::kMatmul, {v, Random({width, Pick(1, 6)})});
      case 6:
        return Add(OpKind::kSoftmax, {v}, {{"axes", Shape{1}}});
      case 7:
        return Add(OpKind::kSub, {v, most});
      case 8:
        return Add(OpKind::kExpand, {most}, {{"shape", Shape{kRows, Pick(2, 5)}}});
      case 9: {
        const int64_t step = Pick(1, 2), size = Pick(1, (width + step - 1) / step);
        return Add(OpKind::kSlice, {v},
                   {{"starts", Shape{0, Pick(0, width - 1 - (size - 1) * step)}},
                    {"steps", Shape{1, step}},
                    {"sizes", Shape{kRows, size}}});
      }
      case 10: {
        const ValueId turned = Add(OpKind::kTranspose, {v}, {{"perm", Shape{1, 0}}});
        return Add(OpKind::kTranspose, {Add(OpKind::kRelu, {turned})}, {{"perm", Shape{1, 0}}});
      }
      case 11: {  // a look-up of each element
        const ValueId place = Add(OpKind::kCast, {v}, {{"to", std::string("i64")}});
        return Add(OpKind::kGather, {Random({3}), place}, {{"axis", int64_t{0}}});
      }
      default:
        return Selected(v);
    }
  }

  TestRng& rng_;
  GraphBuilder b_;
  std::vector<ValueId> values_;  // [rows, any width]
};

TEST(NarrowColumns, RandomPipelinesKeepTheirResults) {
  int narrower = 0;
  for (uint64_t seed = 0; seed < 600 && !::testing::Test::HasFailure(); ++seed) {
    TestRng rng(seed);
    const Graph graph = RemoveDead(Pipeline(rng).Make(static_cast<int>(1 + seed % 7)));
    const auto narrow = NarrowColumns(graph);
    ASSERT_TRUE(narrow.ok()) << "seed " << seed << ": " << narrow.status() << "\n" << Print(graph);
    EXPECT_TRUE(CheckGraph(*narrow).ok()) << CheckGraph(*narrow);
    ExpectEqual(graph, *narrow, seed);
    EXPECT_LE(Elements(*narrow), Elements(graph)) << "seed " << seed << "\n" << Print(*narrow);
    narrower += Elements(*narrow) < Elements(graph);
  }
  EXPECT_GT(narrower, 200);
}

// A scaler and encoders before a selection: k of n features are computed.
TEST(NarrowColumns, OnlySelectedFeaturesAreScaledAndEncoded) {
  GraphBuilder b;
  TestRng rng(1);
  const ValueId x = b.Input("x", {DType::kF32, {kRows, 10}}),
                c = b.Input("c", {DType::kI64, {kRows, 1}});
  const auto random = [&](const Shape& shape) {
    return b.Constant("r", RandomTensor(rng, {DType::kF32, shape}));
  };
  ValueId scaled = *b.Add(OpKind::kSub, {x, random({10})}, {}, "centred");
  scaled = *b.Add(OpKind::kMul, {scaled, random({10})}, {}, "scaled");
  const ValueId apart = *b.Add(OpKind::kReshape, {c}, {{"shape", Shape{kRows, 1, 1}}}, "apart");
  ValueId hot = *b.Add(OpKind::kEqual, {apart, b.Constant("keys", FromInts({0, 1, 2, 3, 4, 5}))},
                       {}, "equal");
  hot = *b.Add(OpKind::kCast, {hot}, {{"to", std::string("f32")}}, "hot");
  hot = *b.Add(OpKind::kReshape, {hot}, {{"shape", Shape{kRows, 6}}}, "flat");
  const ValueId all = *b.Add(OpKind::kConcat, {scaled, hot}, {{"axis", int64_t{1}}}, "all");
  const ValueId picked = *b.Add(OpKind::kGather, {all, b.Constant("s", FromInts({1, 4, 12}))},
                                {{"axis", int64_t{1}}}, "picked");
  const Graph graph = *b.Build({{"y", *b.Add(OpKind::kRelu, {picked}, {}, "relu")}});
  const Graph narrow = *NarrowColumns(graph);
  ExpectEqual(graph, narrow, 1);
  EXPECT_EQ(Elements(narrow, {OpKind::kMul}), kRows * 2) << Print(narrow);
  EXPECT_EQ(Elements(narrow, {OpKind::kEqual, OpKind::kCast}), 2 * kRows);
  EXPECT_EQ(Elements(narrow, {OpKind::kConcat}), kRows * 3);
  // Two of x, and from constants two of each vector and one key.
  EXPECT_EQ(CountOps(narrow, OpKind::kGather), 4) << Print(narrow);
  const Graph prepared = *Optimize(graph);
  EXPECT_EQ(CountOps(prepared, OpKind::kGather), 1) << Print(prepared);
  ExpectEqual(graph, prepared, 2);
}

// A sparse linear model asks for few features, too, if they are made of integers: zero times NaN is NaN.
TEST(NarrowColumns, RowsOfZerosAskForNothing) {
  for (const bool finite : {true, false}) {
    GraphBuilder b;
    TestRng rng(1);
    const ValueId x = b.Input("x", {finite ? DType::kI32 : DType::kF32, {kRows, 10}});
    ValueId scaled = *b.Add(OpKind::kNeg, {x}, {}, "scaled");
    if (finite) scaled = *b.Add(OpKind::kCast, {scaled}, {{"to", std::string("f32")}}, "cast");
    TensorData matrix = RandomTensor(rng, {DType::kF32, {10, 2}});
    std::vector<double> weights = ToDoubles(matrix);
    for (size_t i = 0; i < weights.size(); ++i) {
      if (i / 2 != 3 && i / 2 != 7) weights[i] = i % 2 == 0 ? 0.0 : -0.0;
    }
    const ValueId product = *b.Add(
        OpKind::kMatmul, {scaled, b.Constant("w", FromDoubles(weights, {10, 2}, DType::kF32))}, {},
        "product");
    const Graph graph = *b.Build({{"y", product}});
    const Graph narrow = *NarrowColumns(graph);
    ExpectEqual(graph, narrow, 1);
    EXPECT_EQ(Elements(narrow, {OpKind::kNeg}), kRows * (finite ? 2 : 10)) << Print(narrow);
  }
}

TEST(NarrowColumns, EncodersThatNothingAsksVanish) {
  GraphBuilder b;
  std::vector<ValueId> encoded;
  for (int k = 0; k < 3; ++k) {
    const ValueId x = b.Input("x" + std::to_string(k), {DType::kF32, {kRows, 1}});
    encoded.push_back(*b.Add(OpKind::kLess,
                             {x, b.Constant("keys", FromDoubles({0, 0.5, 1}, {3}, DType::kF32))},
                             {}, "encoded"));
  }
  const ValueId all = *b.Add(OpKind::kConcat, encoded, {{"axis", int64_t{1}}}, "all");
  const Graph graph =
      *b.Build({{"y", *b.Add(OpKind::kGather, {all, b.Constant("s", FromInts({5, 4}))},
                             {{"axis", int64_t{1}}}, "picked")}});
  const Graph narrow = *NarrowColumns(graph);
  ExpectEqual(graph, narrow, 1);
  EXPECT_EQ(CountOps(narrow, OpKind::kLess), 1) << Print(narrow);
  EXPECT_EQ(CountOps(narrow, OpKind::kConcat), 0);
  EXPECT_EQ(narrow.inputs.size(), 3u) << "the model's interface stays";
}

// The norm of a row needs all of it.
TEST(NarrowColumns, ANormIsOfAllColumns) {
  GraphBuilder b;
  const ValueId x = b.Input("x", {DType::kF32, {kRows, 5}});
  const ValueId e = *b.Add(OpKind::kExp, {x}, {}, "e");
  const ValueId sum =
      *b.Add(OpKind::kReduceL2, {e}, {{"axes", Shape{1}}, {"keepdims", int64_t{1}}}, "sum");
  const ValueId normed = *b.Add(OpKind::kDiv, {e, sum}, {}, "normed");
  const ValueId y = *b.Add(OpKind::kGather, {normed, b.Constant("s", FromInts({3}))},
                           {{"axis", int64_t{1}}}, "y");
  const Graph graph = *b.Build({{"y", *b.Add(OpKind::kNeg, {y}, {}, "neg")}});
  const Graph narrow = *NarrowColumns(graph);
  ExpectEqual(graph, narrow, 1);
  EXPECT_EQ(Elements(narrow, {OpKind::kExp}), kRows * 5) << Print(narrow);
  EXPECT_EQ(Elements(narrow, {OpKind::kDiv}), kRows);
}

TEST(NarrowColumns, WithoutAConstantSelectionNothingChanges) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    TestRng rng(seed);
    const Graph graph = RandomGraph(rng, 8);
    EXPECT_EQ(Print(*NarrowColumns(graph)), Print(graph));
  }
}

}  // namespace
}  // namespace heddle::graph
