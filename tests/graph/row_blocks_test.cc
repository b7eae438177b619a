// One graph for several numbers of rows.
#include "compiler/graph/core/row_blocks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/vocabulary/row_blocks.h"
#include "compiler/graph/core/graph_builder.h"
#include "compiler/graph/core/tensor_data.h"
#include "compiler/graph/fusion/row_blocks.h"
#include "compiler/graph/passes/evaluate.h"
#include "tests/graph/random_graph.h"

namespace heddle::graph {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// y = softmax(x + c) of each row, z = the sum of each row.
Graph Model(int64_t rows, const std::vector<double>& c = {1, 2, 3}) {
  GraphBuilder b;
  const ValueId x = b.Input("x", {ir::DType::kF32, {rows, 3}});
  const ValueId moved =
      *b.Add(OpKind::kAdd, {x, b.Constant("c", FromDoubles(c, {3}, ir::DType::kF32))}, {}, "moved");
  const ValueId y = *b.Add(OpKind::kSoftmax, {moved}, {{"axes", Shape{1}}}, "softmax");
  const ValueId z =
      *b.Add(OpKind::kReduceSum, {x}, {{"axes", Shape{1}}, {"keepdims", int64_t{1}}}, "total");
  Graph g = *b.Build({{"y", y}, {"z", z}});
  g.tables.independent_rows = true;
  g.tables.inputs = {{.columns = {"a", "b", "c"}}};
  g.tables.outputs.resize(2);
  return g;
}

Graph Joined(const std::vector<int64_t>& blocks) {
  Graph g = Model(blocks[0]);
  for (size_t b = 1; b < blocks.size(); ++b) EXPECT_TRUE(AddRowBlock(Model(blocks[b]), &g).ok());
  return g;
}

TEST(RowBlocks, HoldTheModelOnceForEachNumberOfRows) {
  const Graph g = Joined({8, 4, 1});
  ASSERT_TRUE(CheckGraph(g).ok()) << CheckGraph(g);
  EXPECT_THAT(g.tables.blocks, ElementsAre(8, 4, 1));
  EXPECT_EQ(g.constants.size(), 1u) << "all blocks read the same constant";
  EXPECT_EQ(g.nodes.size(), 9u);
  ASSERT_EQ(g.inputs.size(), 3u);
  ASSERT_EQ(g.outputs.size(), 6u);
  EXPECT_EQ(g.values[g.inputs[0]].name, "x");
  EXPECT_EQ(g.values[g.inputs[1]].name, "x@4");
  EXPECT_EQ(ToText(g.values[g.outputs[5]].type), "f32[1,1]");
  EXPECT_EQ(g.values[g.outputs[5]].name, "z@1");
  EXPECT_EQ(g.tables.inputs.size(), 3u);
  EXPECT_EQ(g.tables.outputs.size(), 6u);
  // Another constant of the same name stays another one.
  Graph other = Model(8);
  EXPECT_TRUE(AddRowBlock(Model(2, {1, 2, 4}), &other).ok());
  EXPECT_TRUE(CheckGraph(other).ok()) << CheckGraph(other);
  EXPECT_EQ(other.constants.size(), 2u);
}

TEST(RowBlocks, ABlockIsAModelOfItsOwn) {
  const std::vector<int64_t> rows = {8, 4, 1};
  const Graph g = Joined(rows);
  for (size_t b = 0; b < rows.size(); ++b) {
    const Graph one = RowBlock(g, b), model = Model(rows[b]);
    ASSERT_TRUE(CheckGraph(one).ok()) << CheckGraph(one);
    EXPECT_EQ(one.tables, model.tables);
    ASSERT_EQ(one.inputs.size(), 1u);
    EXPECT_EQ(one.values[one.inputs[0]].name, "x");
    EXPECT_EQ(one.values[one.outputs[1]].name, "z");
    EXPECT_EQ(one.nodes.size(), model.nodes.size());
    TestRng rng(b);
    const std::vector<TensorData> inputs = RandomInputs(rng, model);
    EXPECT_EQ(Difference(*EvaluateGraph(one, inputs), *EvaluateGraph(model, inputs)), 0);
  }
  EXPECT_EQ(Print(RowBlock(Model(8), 0)), Print(Model(8))) << "a graph without blocks is one";
}

TEST(RowBlocks, GroupsBelongToTheBlocksThatNeedThem) {
  for (const bool enabled : {true, false}) {
    FuseOptions options;
    options.enabled = enabled;
    const FusedGraph fused = Fuse(Joined({8, 4, 1}), options).value();
    const std::vector<BlockGroups> blocks = GroupsByBlock(fused);
    ASSERT_EQ(blocks.size(), 3u);
    std::vector<int> seen;
    for (const BlockGroups& block : blocks) {
      EXPECT_TRUE(std::is_sorted(block.groups.begin(), block.groups.end()));
      seen.insert(seen.end(), block.groups.begin(), block.groups.end());
      const int64_t rows = 8 / block.runs;
      for (const int g : block.groups) {
        for (ValueId v : fused.groups[static_cast<size_t>(g)].outputs)
          EXPECT_EQ(fused.graph.values[v].type.shape[0], rows);
      }
    }
    std::sort(seen.begin(), seen.end());
    EXPECT_EQ(seen.size(), fused.groups.size());
    EXPECT_EQ(std::adjacent_find(seen.begin(), seen.end()), seen.end());
  }
  const FusedGraph one = Fuse(Model(8)).value();
  ASSERT_EQ(GroupsByBlock(one).size(), 1u);
  EXPECT_EQ(GroupsByBlock(one)[0].groups.size(), one.groups.size());
}

TEST(RowBlocks, EachBlockHasTheSameShareOfTheWork) {
  EXPECT_THAT(RunsOfGroups(Fuse(Model(8)).value()), Each(1));
  double work[3] = {};
  for (const Task& task : ExtractTasks(Fuse(Joined({8, 4, 1})).value())) {
    const bool four = task.label.find("4x") != std::string::npos,
               one = task.label.find("1x") != std::string::npos;
    EXPECT_EQ(task.weight, four ? 2 : one ? 8 : 1) << task.label;
    work[four ? 1 : one ? 2 : 0] += task.flops * task.weight;
  }
  EXPECT_GT(work[0], 0);
  EXPECT_EQ(work[1], work[0]);
  EXPECT_EQ(work[2], work[0]);
  EXPECT_EQ(GroupsByBlock(Fuse(Joined({100, 51})).value())[1].runs, 2);
}

TEST(RowBlocks, Refusals) {
  const auto refusal = [](const Graph& block) {
    Graph g = Joined({8, 4});
    return std::string(AddRowBlock(block, &g).message());
  };
  EXPECT_EQ(refusal(Model(2)), "");
  EXPECT_THAT(refusal(Model(4)), HasSubstr("a block of 4 rows"));
  EXPECT_THAT(refusal(Model(5)), HasSubstr("a block of 5 rows"));
  Graph narrow;
  {
    GraphBuilder b;
    const ValueId x = b.Input("x", {ir::DType::kF32, {2, 2}});
    narrow = *b.Build(
        {{"y", *b.Add(OpKind::kExp, {x}, {}, "exp")}, {"z", *b.Add(OpKind::kNeg, {x}, {}, "neg")}});
  }
  narrow.tables.inputs.resize(1);
  narrow.tables.outputs.resize(2);
  EXPECT_THAT(refusal(narrow), HasSubstr("'x@2' is f32[2,2] and not f32[2,3]"));
  Graph fewer = Model(2);
  fewer.outputs.pop_back();
  fewer.tables.outputs.pop_back();
  EXPECT_THAT(refusal(fewer), HasSubstr("cannot have 5 tensors"));
  Graph most = Model(20);
  for (int64_t rows = 19; rows > 20 - static_cast<int64_t>(kMostRowBlocks); --rows)
    EXPECT_TRUE(AddRowBlock(Model(rows), &most).ok()) << rows;
  EXPECT_THAT(std::string(AddRowBlock(Model(1), &most).message()), HasSubstr("9 blocks"));
  Graph dependent = Model(8);
  dependent.tables.independent_rows = false;
  EXPECT_THAT(std::string(AddRowBlock(Model(1), &dependent).message()), HasSubstr("independent"));
}

}  // namespace
}  // namespace heddle::graph
