// Concatenations of several operands as chains, and joined again.
#include "compiler/graph/passes/pair_concats.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "compiler/graph/core/graph_builder.h"
#include "compiler/graph/passes/evaluate.h"
#include "tests/graph/random_graph.h"

namespace heddle::graph {
namespace {

int Concats(const Graph& g) {
  return static_cast<int>(std::count_if(g.nodes.begin(), g.nodes.end(),
                                        [](const Node& n) { return n.kind == OpKind::kConcat; }));
}

class ConcatNetwork {
 public:
  ValueId In(int64_t rows, int64_t columns) {
    return b_.Input("x", {ir::DType::kF32, {rows, columns}});
  }
  ValueId Concat(const std::vector<ValueId>& parts, int64_t axis) {
    return *b_.Add(OpKind::kConcat, parts, {{"axis", axis}}, "concat");
  }
  ValueId Relu(ValueId x) { return *b_.Add(OpKind::kRelu, {x}, {}, "relu"); }
  Graph Build(const std::vector<ValueId>& outputs) {
    std::vector<std::pair<std::string, ValueId>> named;
    for (const ValueId v : outputs) named.emplace_back("y", v);
    return *b_.Build(named);
  }

 private:
  GraphBuilder b_;
};

TEST(PairConcats, AChainIsJoinedToWhatItWas) {
  ConcatNetwork n;
  const Graph graph =
      n.Build({n.Relu(n.Concat({n.In(2, 1), n.In(2, 2), n.In(2, 3), n.In(2, 4)}, 1))});
  const Graph paired = *PairConcats(graph);
  EXPECT_EQ(Concats(paired), 3);
  for (const Node& node : paired.nodes) EXPECT_LE(node.inputs.size(), 2u);
  TestRng rng(1);
  const std::vector<TensorData> inputs = RandomInputs(rng, graph);
  EXPECT_EQ(Difference(*EvaluateGraph(graph, inputs), *EvaluateGraph(paired, inputs)), 0);
  EXPECT_EQ(Print(*JoinConcats(paired)), Print(graph));
}

// Counted from the last dimension, an axis is the same.
TEST(JoinConcats, NestedOnesAlongOneAxisAreOne) {
  ConcatNetwork n;
  const ValueId inner = n.Concat({n.In(2, 1), n.In(2, 2)}, -1);
  const Graph joined = *JoinConcats(n.Build({n.Relu(n.Concat({n.In(2, 3), inner}, 1))}));
  EXPECT_EQ(Concats(joined), 1);
  EXPECT_EQ(joined.nodes[0].inputs.size(), 3u);
}

TEST(JoinConcats, OtherAxesAndOtherReadersKeepThem) {
  {
    ConcatNetwork n;
    const ValueId inner = n.Concat({n.In(2, 1), n.In(2, 2)}, 1);
    EXPECT_EQ(Concats(*JoinConcats(n.Build({n.Concat({inner, n.In(4, 3)}, 0)}))), 2);
  }
  {
    ConcatNetwork n;
    const ValueId inner = n.Concat({n.In(2, 1), n.In(2, 2)}, 1);
    EXPECT_EQ(Concats(*JoinConcats(n.Build({n.Concat({inner, n.In(2, 3)}, 1), n.Relu(inner)}))), 2);
  }
}

}  // namespace
}  // namespace heddle::graph
