// Layer normalisation spelled out, in the variants exporters write, and what only looks like it.
#include "compiler/graph/passes/recognize_normalize.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "compiler/graph/core/graph_builder.h"
#include "compiler/graph/core/tensor_data.h"
#include "compiler/graph/ops/op_util.h"
#include "compiler/graph/passes/evaluate.h"
#include "tests/graph/random_graph.h"

namespace heddle::graph {
namespace {

struct Variant {
  bool twice = false;          // the difference is computed twice
  bool reciprocal = false;     // times 1 / deviation
  bool epsilon_first = false;  // epsilon + variance
  // What makes it something else.
  Shape variance_axes = {2};
  bool cubed = false;
  bool other_mean = false;  // of something else than what it is taken from
};

Graph SpelledOut(const Variant& variant) {
  GraphBuilder b;
  const ValueId x = b.Input("x", {ir::DType::kF32, {2, 3, 8}});
  const auto add = [&](OpKind kind, const std::vector<ValueId>& in, const Attrs& attrs = {}) {
    return *b.Add(kind, in, attrs, NameOf(kind));
  };
  const auto mean = [&](ValueId v, const Shape& axes) {
    return add(OpKind::kReduceMean, {v}, {{"axes", axes}, {"keepdims", int64_t{1}}});
  };
  const auto centred = [&] {
    const ValueId from = variant.other_mean ? add(OpKind::kAbs, {x}) : x;
    return add(OpKind::kSub, {x, mean(from, {-1})});
  };
  const ValueId c = centred(), again = variant.twice ? centred() : c;
  ValueId square = add(OpKind::kMul, {again, again});
  if (variant.cubed) square = add(OpKind::kMul, {square, again});
  const ValueId variance = mean(square, variant.variance_axes);
  const ValueId epsilon = b.Constant("epsilon", FromDoubles({1e-2}, {}, ir::DType::kF32));
  const ValueId sum = variant.epsilon_first ? add(OpKind::kAdd, {epsilon, variance})
                                            : add(OpKind::kAdd, {variance, epsilon});
  const ValueId deviation = add(OpKind::kSqrt, {sum});
  const ValueId y = variant.reciprocal
                        ? add(OpKind::kMul, {add(OpKind::kReciprocal, {deviation}), c})
                        : add(OpKind::kDiv, {c, deviation});
  return *b.Build({{"y", y}});
}

bool Recognized(const Variant& variant) {
  const Graph graph = SpelledOut(variant), after = *RecognizeNormalize(graph);
  TestRng rng(1);
  const std::vector<TensorData> inputs = RandomInputs(rng, graph);
  if (!variant.cubed) {  // whose roots are of negative numbers, too
    EXPECT_LE(Difference(*EvaluateGraph(graph, inputs), *EvaluateGraph(after, inputs)), 1e-5)
        << Print(after);
  }
  const bool one = after.nodes.size() == 1 && after.nodes[0].kind == OpKind::kNormalize;
  if (!one) {
    EXPECT_EQ(after.nodes.size(), graph.nodes.size());
  }
  return one;
}

TEST(RecognizeNormalize, EveryWayOfWritingIt) {
  EXPECT_TRUE(Recognized({}));
  EXPECT_TRUE(Recognized({.twice = true}));
  EXPECT_TRUE(Recognized({.reciprocal = true}));
  EXPECT_TRUE(Recognized({.twice = true, .reciprocal = true, .epsilon_first = true}));
}

TEST(RecognizeNormalize, WhatIsSomethingElse) {
  EXPECT_FALSE(Recognized({.variance_axes = {1, 2}}));
  EXPECT_FALSE(Recognized({.cubed = true}));
  EXPECT_FALSE(Recognized({.other_mean = true}));
}

}  // namespace
}  // namespace heddle::graph
