// Equal nodes, and those that only look equal.
#include "compiler/graph/passes/merge_equal.h"

#include <gtest/gtest.h>

#include <cmath>

#include "compiler/graph/core/graph_builder.h"
#include "compiler/graph/ops/op_util.h"
#include "compiler/graph/passes/evaluate.h"
#include "tests/graph/random_graph.h"

namespace heddle::graph {
namespace {

TEST(MergeEqual, EqualChainsBecomeOne) {
  GraphBuilder b;
  const ValueId x = b.Input("x", {ir::DType::kF32, {2, 3}});
  std::vector<std::pair<std::string, ValueId>> outputs;
  for (int i = 0; i < 3; ++i) {
    ValueId v = *b.Add(OpKind::kRelu, {x}, {}, "relu");
    v = *b.Add(OpKind::kClip, {v}, {{"max", i == 2 ? 0.5 : 0.25}}, "clip");
    outputs.emplace_back("y", *b.Add(OpKind::kExp, {v}, {}, "exp"));
  }
  const Graph graph = *b.Build(outputs), merged = *MergeEqual(graph);
  // One relu, two clips, two exps; the result that is two outputs is copied for the second.
  EXPECT_EQ(merged.nodes.size(), 6u) << Print(merged);
  EXPECT_EQ(merged.outputs.size(), 3u);
  TestRng rng(1);
  const std::vector<TensorData> inputs = RandomInputs(rng, graph);
  EXPECT_EQ(Difference(*EvaluateGraph(graph, inputs), *EvaluateGraph(merged, inputs)), 0);
}

TEST(MergeEqual, MovementAndNansStay) {
  GraphBuilder b;
  const ValueId x = b.Input("x", {ir::DType::kF32, {2, 3}});
  std::vector<std::pair<std::string, ValueId>> outputs;
  for (int i = 0; i < 2; ++i) {
    const ValueId moved = *b.Add(OpKind::kTranspose, {x}, {{"perm", Shape{1, 0}}}, "transpose");
    outputs.emplace_back("y", *b.Add(OpKind::kClip, {moved}, {{"max", std::nan("")}}, "clip"));
  }
  EXPECT_EQ(MergeEqual(*b.Build(outputs))->nodes.size(), 4u);
}

}  // namespace
}  // namespace heddle::graph
