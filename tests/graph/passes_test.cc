// The passes against direct evaluation of the graph they start from.
#include "compiler/graph/passes/passes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "client/zoo/zoo.h"
#include "compiler/graph/core/graph_builder.h"
#include "compiler/graph/core/tensor_data.h"
#include "compiler/graph/fusion/fuse.h"
#include "compiler/graph/ops/op_util.h"
#include "compiler/graph/passes/evaluate.h"
#include "compiler/onnx/import.h"
#include "tests/graph/random_graph.h"

namespace heddle::graph {
namespace {

using ::testing::HasSubstr;

constexpr int kGraphs = 150;
constexpr double kTolerance =
    1e-4;  // folding batch norm and other orders of summation round differently

void ExpectSameResult(const Graph& graph, const PassOptions& options, TestRng& rng, uint64_t seed) {
  auto optimized = Optimize(graph, options);
  ASSERT_TRUE(optimized.ok()) << "seed " << seed << ": " << optimized.status() << "\n"
                              << Print(graph);
  const std::vector<TensorData> inputs = RandomInputs(rng, graph);
  auto before = EvaluateGraph(graph, inputs), after = EvaluateGraph(*optimized, inputs);
  ASSERT_TRUE(before.ok()) << "seed " << seed << ": " << before.status();
  ASSERT_TRUE(after.ok()) << "seed " << seed << ": " << after.status() << "\n" << Print(*optimized);
  EXPECT_LE(Difference(*before, *after), kTolerance) << "seed " << seed << "\n"
                                                     << Print(graph) << "\nafter\n"
                                                     << Print(*optimized);
  for (size_t i = 0; i < graph.outputs.size(); ++i) {
    EXPECT_EQ(graph.values[graph.outputs[i]].name, optimized->values[optimized->outputs[i]].name);
  }
}

TEST(PassesProperty, AllPassesKeepTheResult) {
  for (uint64_t seed = 0; seed < kGraphs && !::testing::Test::HasFailure(); ++seed) {
    TestRng rng(seed);
    ExpectSameResult(RandomGraph(rng, 4 + static_cast<int>(seed % 12)), {}, rng, seed);
  }
}

TEST(PassesProperty, EachPassKeepsTheResultAlone) {
  for (const std::string& kept : PassNames()) {
    PassOptions options;
    for (const std::string& name : PassNames()) {
      if (name != kept) options.disabled.insert(name);
    }
    for (uint64_t seed = 1000; seed < 1000 + kGraphs / 4 && !::testing::Test::HasFailure();
         ++seed) {
      TestRng rng(seed);
      ExpectSameResult(RandomGraph(rng, 8), options, rng, seed);
    }
  }
}

TEST(PassesProperty, LayoutOnAndOffAgree) {
  PassOptions off;
  off.disabled = {"layout"};
  for (uint64_t seed = 2000; seed < 2000 + kGraphs && !::testing::Test::HasFailure(); ++seed) {
    TestRng rng(seed);
    const Graph graph = RandomGraph(rng, 8);
    auto with = Optimize(graph), without = Optimize(graph, off);
    ASSERT_TRUE(with.ok() && without.ok());
    const std::vector<TensorData> inputs = RandomInputs(rng, graph);
    EXPECT_LE(Difference(*EvaluateGraph(*with, inputs), *EvaluateGraph(*without, inputs)),
              kTolerance)
        << "seed " << seed;
  }
}

// A name for each column of each tensor that has rows.
Tables NamesOf(const Graph& graph) {
  Tables tables;
  for (const auto& [values, names] :
       {std::pair{&graph.inputs, &tables.inputs}, std::pair{&graph.outputs, &tables.outputs}}) {
    for (ValueId v : *values) {
      names->emplace_back();
      const Value& value = graph.values[v];
      if (value.type.shape.empty()) continue;
      for (int64_t c = 0; c < NumElements(value.type) / value.type.shape[0]; ++c)
        names->back().columns.push_back(value.name + std::to_string(c));
    }
  }
  return tables;
}

TEST(PassesProperty, NamesOfColumnsStay) {
  for (uint64_t seed = 3000; seed < 3000 + kGraphs / 4; ++seed) {
    TestRng rng(seed);
    Graph graph = RandomGraph(rng, 8);
    graph.tables = NamesOf(graph);
    const auto optimized = Optimize(graph);
    ASSERT_TRUE(optimized.ok()) << optimized.status();
    EXPECT_EQ(optimized->tables, graph.tables) << "seed " << seed;
    EXPECT_EQ(Fuse(*optimized)->graph.tables, graph.tables);
  }
}

TEST(Passes, DisablingAnUnknownPassListsThem) {
  PassOptions options;
  options.disabled = {"speed-up"};
  TestRng rng(1);
  EXPECT_THAT(
      std::string(Optimize(RandomGraph(rng, 3), options).status().message()),
      testing::AllOf(HasSubstr("speed-up"), HasSubstr("fold-batch-norm"), HasSubstr("layout")));
}

TEST(Passes, TheObserverSeesEveryPassThatRuns) {
  PassOptions options;
  options.disabled = {"layout"};
  std::vector<std::string> seen;
  options.observer = [&](const std::string& name, const Graph&, double) { seen.push_back(name); };
  TestRng rng(1);
  ASSERT_TRUE(Optimize(RandomGraph(rng, 3), options).ok());
  std::vector<std::string> expected = PassNames();
  std::erase(expected, "layout");
  EXPECT_EQ(seen, expected);
}

// Disabling one pass disables no other.
TEST(Passes, NamesAreDistinct) {
  const std::vector<std::string> names = PassNames();
  EXPECT_EQ(std::set<std::string>(names.begin(), names.end()).size(), names.size());
  PassOptions options;
  options.disabled = {"fold-constants"};
  auto graph = Optimize(*ImportOnnx(*zoo::MakeZooModel("resnet18", 1)), options);
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_EQ(CountOps(*graph, OpKind::kTranspose), 1) << "the weights' transposes stay";
}

// In the networks that the project is measured on, one transpose is left: of the image.
TEST(Passes, ZooModelsKeepOneTransposeAndNoBatchNorm) {
  for (const char* name : {"resnet18", "mobilenet_v1", "mobilenet_v2"}) {
    auto graph = ImportOnnx(*zoo::MakeZooModel(name, 1));
    ASSERT_TRUE(graph.ok()) << graph.status();
    EXPECT_GT(CountOps(*graph, OpKind::kBatchNorm), 10);
    auto optimized = Optimize(*graph);
    ASSERT_TRUE(optimized.ok()) << optimized.status();
    EXPECT_EQ(CountOps(*optimized, OpKind::kTranspose), 1) << name;
    EXPECT_EQ(CountOps(*optimized, OpKind::kReshape), 0) << name;
    EXPECT_EQ(CountOps(*optimized, OpKind::kBatchNorm), 0) << name;
    EXPECT_EQ(CountOps(*optimized, OpKind::kMul), 0) << name;
  }
}

// A model whose own transposes lead to channels last loses them all.
TEST(Passes, TransposesOfTheModelCancelThoseOfLayout) {
  TestRng rng(3);
  GraphBuilder b;
  const ValueId x = b.Input("x", {ir::DType::kF32, {1, 30, 30, 4}});
  const ValueId first = *b.Add(OpKind::kTranspose, {x}, {{"perm", Shape{0, 3, 1, 2}}}, "in");
  const ValueId w = b.Constant("w", RandomTensor(rng, {ir::DType::kF32, {16, 4, 3, 3}}));
  const ValueId y =
      *b.Add(OpKind::kRelu, {*b.Add(OpKind::kConv2d, {first, w}, {}, "conv")}, {}, "relu");
  const ValueId last = *b.Add(OpKind::kTranspose, {y}, {{"perm", Shape{0, 2, 3, 1}}}, "out");
  const Graph graph = *b.Build({{"y", last}});
  auto optimized = Optimize(graph);
  ASSERT_TRUE(optimized.ok());
  EXPECT_EQ(optimized->nodes.size(), 2u) << Print(*optimized);
  const auto inputs = RandomInputs(rng, graph);
  EXPECT_LE(Difference(*EvaluateGraph(graph, inputs), *EvaluateGraph(*optimized, inputs)),
            kTolerance);
}

TEST(Passes, ZeroPaddingBecomesPartOfTheConvolution) {
  TestRng rng(4);
  GraphBuilder b;
  const ValueId x = b.Input("x", {ir::DType::kF32, {1, 2, 5, 5}});
  const ValueId padded =
      *b.Add(OpKind::kPad, {x}, {{"begin", Shape{0, 0, 1, 1}}, {"end", Shape{0, 0, 1, 0}}}, "pad");
  const ValueId w = b.Constant("w", RandomTensor(rng, {ir::DType::kF32, {3, 2, 3, 3}}));
  const Graph graph = *b.Build({{"y", *b.Add(OpKind::kConv2d, {padded, w}, {}, "conv")}});
  auto optimized = Optimize(graph);
  ASSERT_TRUE(optimized.ok());
  EXPECT_EQ(CountOps(*optimized, OpKind::kPad), 0) << Print(*optimized);
  const auto inputs = RandomInputs(rng, graph);
  EXPECT_LE(Difference(*EvaluateGraph(graph, inputs), *EvaluateGraph(*optimized, inputs)),
            kTolerance);
}

// The addend widens one channel to three: the weights have no room for three scales.
TEST(Passes, BatchNormOfAWidenedChannelStaysRight) {
  TestRng rng(5);
  for (const bool convolution : {true, false}) {
    GraphBuilder b;
    const auto constant = [&](Shape shape) {
      return b.Constant("c", RandomTensor(rng, {ir::DType::kF32, std::move(shape)}));
    };
    const ValueId x =
        b.Input("x", {ir::DType::kF32, convolution ? Shape{1, 1, 2, 2} : Shape{2, 4}});
    const ValueId one = convolution
                            ? *b.Add(OpKind::kConv2d, {x, constant({1, 1, 1, 1})}, {}, "conv")
                            : *b.Add(OpKind::kMatmul, {x, constant({4, 1})}, {}, "matmul");
    const ValueId three = *b.Add(
        OpKind::kAdd, {one, constant(convolution ? Shape{1, 3, 1, 1} : Shape{3})}, {}, "add");
    const ValueId variance = b.Constant("v", FromDoubles({1, 2, 3}, {3}, ir::DType::kF32));
    const ValueId y =
        *b.Add(OpKind::kBatchNorm, {three, constant({3}), constant({3}), constant({3}), variance},
               {{"axis", int64_t{1}}}, "norm");
    ExpectSameResult(*b.Build({{"y", y}}), {}, rng, 5);
  }
}

// A convolution has no padding as wide as both together.
TEST(Passes, PaddingThatAConvolutionCannotHaveStays) {
  GraphBuilder b;
  const int64_t far = (int64_t{1} << 20) + 1;
  const ValueId x = b.Input("x", {ir::DType::kF32, {1, 1, 1, 5}});
  const ValueId padded = *b.Add(
      OpKind::kPad, {x}, {{"begin", Shape{0, 0, 0, far}}, {"end", Shape{0, 0, 0, 0}}}, "pad");
  const ValueId w = b.Constant("w", Filled({ir::DType::kF32, {1, 1, 1, 1}}, 1));
  const Graph graph = *b.Build({{"y", *b.Add(OpKind::kConv2d, {padded, w}, {}, "conv")}});
  const auto optimized = Optimize(graph);
  ASSERT_TRUE(optimized.ok()) << optimized.status();
  EXPECT_EQ(CountOps(*optimized, OpKind::kPad), 1) << Print(*optimized);
}

TEST(Passes, PaddingByAnIntegerThatIsNotZeroStays) {
  TestRng rng(6);
  GraphBuilder b;
  const ValueId x = b.Input("x", {ir::DType::kI32, {1, 1, 3, 3}});
  const ValueId padded = *b.Add(
      OpKind::kPad, {x},
      {{"begin", Shape{0, 0, 1, 1}}, {"end", Shape{0, 0, 1, 1}}, {"value", int64_t{7}}}, "pad");
  const ValueId w = b.Constant("w", Filled({ir::DType::kI32, {1, 1, 2, 2}}, 1));
  ExpectSameResult(*b.Build({{"y", *b.Add(OpKind::kConv2d, {padded, w}, {}, "conv")}}), {}, rng, 6);
}

TEST(Passes, ConstantsFold) {
  GraphBuilder b;
  const ValueId x = b.Input("x", {ir::DType::kF32, {2}});
  const ValueId c =
      *b.Add(OpKind::kExp, {b.Constant("c", FromDoubles({0, 1}, {2}, ir::DType::kF32))}, {}, "exp");
  const Graph graph = *b.Build({{"y", *b.Add(OpKind::kAdd, {x, c}, {}, "add")}});
  auto optimized = Optimize(graph);
  ASSERT_TRUE(optimized.ok());
  ASSERT_EQ(optimized->nodes.size(), 1u);
  ASSERT_EQ(optimized->constants.size(), 1u);
  EXPECT_NEAR(ToDoubles(optimized->constants.begin()->second)[1], 2.7182818, 1e-6);
}

}  // namespace
}  // namespace heddle::graph
