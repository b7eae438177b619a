// Graphs: the checker's refusals, the builder's promises, the printer.
#include "compiler/graph/core/graph.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "compiler/graph/core/graph_builder.h"
#include "compiler/graph/core/tensor_data.h"
#include "compiler/graph/ops/op_util.h"

namespace heddle::graph {
namespace {

using ::testing::HasSubstr;

Graph Sum() {
  GraphBuilder b;
  const ValueId x = b.Input("x", {ir::DType::kF32, {2, 3}});
  const ValueId c = b.Constant("c", FromDoubles({1, 2, 3}, {3}, ir::DType::kF32));
  return *b.Build({{"y", *b.Add(OpKind::kAdd, {x, c}, {}, "sum")}});
}

std::string Refusal(const Graph& g) { return std::string(CheckGraph(g).message()); }

TEST(CheckGraph, AcceptsAGraphAndNamesWhatIsWrongWithOthers) {
  EXPECT_TRUE(CheckGraph(Sum()).ok());
  Graph g = Sum();
  g.values[2].type.shape = {2, 4};
  EXPECT_THAT(Refusal(g), HasSubstr("add gives f32[2,3]"));
  g = Sum();
  g.values[1].name = "x";
  EXPECT_THAT(Refusal(g), HasSubstr("two values are named 'x'"));
  g = Sum();
  g.nodes[0].attrs["axis"] = int64_t{1};
  EXPECT_THAT(Refusal(g), HasSubstr("has no attribute 'axis'"));
  g = Sum();
  g.nodes[0].inputs[1] = 2;
  EXPECT_THAT(Refusal(g), HasSubstr("reads an undefined value"));
  g = Sum();
  g.nodes.push_back(g.nodes[0]);
  EXPECT_THAT(Refusal(g), HasSubstr("two nodes are named"));
  g = Sum();
  g.constants[1].bytes = std::make_shared<const std::string>("short");
  EXPECT_THAT(Refusal(g), HasSubstr("does not have the bytes"));
  g = Sum();
  g.values[0].type.shape = {0, 3};
  EXPECT_THAT(Refusal(g), HasSubstr("'sum' reads a tensor without elements"));
  g = Sum();
  g.outputs.push_back(g.outputs[0]);
  EXPECT_THAT(Refusal(g), HasSubstr("is an output twice"));
}

TEST(CheckGraph, LengthsBelongToOutputs) {
  GraphBuilder b;
  const ValueId x = b.Input("x", {ir::DType::kF32, {4}}), n = b.Input("n", {ir::DType::kI64, {}});
  Graph g = *b.Build({{"y", *b.Add(OpKind::kExp, {x}, {}, "exp")}, {"length of y", n}});
  g.lengths = {{0, 0, 1}};
  EXPECT_TRUE(CheckGraph(g).ok());
  EXPECT_EQ(g.NumResults(), 1);
  // Of no output, along no dimension, held by no output, by one that has a length, by no i64.
  for (const OutputLength& bad :
       {OutputLength{2, 0, 1}, {0, 1, 1}, {0, -1, 1}, {0, 0, 2}, {0, 0, 0}, {1, 0, 0}}) {
    g.lengths = {bad};
    EXPECT_FALSE(CheckGraph(g).ok()) << bad.output << " " << bad.axis << " " << bad.length;
  }
}

TEST(CheckGraph, NamesFitTheirTensors) {
  const auto refusal = [](const std::function<void(Graph&)>& change) {
    Graph g = Sum();
    g.tables.independent_rows = true;
    g.tables.inputs = {{.columns = {"a", "b", "c"}}};
    g.tables.outputs = {{.columns = {"d", "e", "f"}}};
    change(g);
    return Refusal(g);
  };
  EXPECT_EQ(refusal([](Graph&) {}), "");
  EXPECT_EQ(refusal([](Graph& g) { g.tables.inputs.clear(); }), "");
  EXPECT_EQ(refusal([](Graph& g) { g.tables.inputs[0].columns.clear(); }), "");
  EXPECT_THAT(refusal([](Graph& g) { g.tables.inputs[0].columns.pop_back(); }),
              HasSubstr("'x' has 2 names for 3 columns"));
  EXPECT_THAT(refusal([](Graph& g) { g.tables.outputs.emplace_back(); }),
              HasSubstr("2 tensors of 1"));
  EXPECT_THAT(refusal([](Graph& g) { g.tables.outputs[0].labels = {"no"}; }),
              HasSubstr("'y' has labels"));
  EXPECT_THAT(refusal([](Graph& g) { g.tables.outputs[0].columns[1].assign(1025, 'x'); }),
              HasSubstr("1025 bytes"));
  EXPECT_EQ(refusal([](Graph& g) { g.tables.outputs[0].columns[1].assign(1024, 'x'); }), "");
  EXPECT_THAT(refusal([](Graph& g) { g.tables.inputs[0].text = true; }),
              HasSubstr("'x' has texts"));

  // The bytes of texts are no columns.
  GraphBuilder texts;
  const ValueId words = texts.Input("words", {ir::DType::kU8, {2, 3, 5}});
  Graph table = *texts.Build({{"y", *texts.Add(OpKind::kIdentity, {words}, {}, "copy")}});
  table.tables.inputs = {{.text = true, .columns = {"a", "b", "c"}}};
  EXPECT_EQ(Refusal(table), "");
  table.tables.inputs[0].text = false;
  EXPECT_THAT(Refusal(table), HasSubstr("3 names for 15 columns"));

  // An input of other rows, or of none.
  for (const Shape& shape : {Shape{3}, Shape{}}) {
    GraphBuilder b;
    const ValueId x = b.Input("x", {ir::DType::kF32, {2}});
    b.Input("other", {ir::DType::kF32, shape});
    Graph g = *b.Build({{"y", *b.Add(OpKind::kExp, {x}, {}, "exp")}});
    EXPECT_EQ(Refusal(g), "");
    g.tables.independent_rows = true;
    EXPECT_THAT(Refusal(g), HasSubstr("'other' has "));
  }
}

TEST(GraphBuilder, OutputsAreMadeByNodesAndKeepTheirNames) {
  GraphBuilder b;
  const ValueId x = b.Input("x", {ir::DType::kF32, {2}});
  const ValueId y = *b.Add(OpKind::kRelu, {x}, {}, "out");  // the name another output wants
  const Graph g = *b.Build({{"copy", x}, {"first", y}, {"second", y}});
  EXPECT_TRUE(CheckGraph(g).ok()) << Print(g);
  EXPECT_EQ(g.values[g.outputs[0]].name, "copy");
  EXPECT_EQ(g.values[g.outputs[1]].name, "first");
  EXPECT_EQ(g.values[g.outputs[2]].name, "second");
  EXPECT_EQ(g.nodes.size(), 3u);
}

TEST(Print, OneLineANode) {
  EXPECT_THAT(Print(Sum()), HasSubstr("%2:f32[2,3] = add(%0, %1)  # sum"));
}

TEST(RemoveDead, KeepsInputsAndDropsTheRest) {
  GraphBuilder b;
  const ValueId x = b.Input("x", {ir::DType::kF32, {2}});
  b.Input("unused", {ir::DType::kF32, {2}});
  ASSERT_TRUE(b.Add(OpKind::kExp, {x}, {}, "dead").ok());
  b.Constant("dead_constant", FromDoubles({1}, {}, ir::DType::kF32));
  const Graph g = RemoveDead(*b.Build({{"y", *b.Add(OpKind::kRelu, {x}, {}, "live")}}));
  EXPECT_TRUE(CheckGraph(g).ok());
  EXPECT_EQ(g.inputs.size(), 2u);
  EXPECT_EQ(g.nodes.size(), 1u);
  EXPECT_TRUE(g.constants.empty());
}

}  // namespace
}  // namespace heddle::graph
