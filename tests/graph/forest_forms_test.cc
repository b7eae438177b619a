// Forms of forests: every form computes what the walk does, on the values where that is easy to get wrong.
#include "compiler/graph/passes/forest_forms.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "compiler/graph/core/graph_builder.h"
#include "compiler/graph/core/operator.h"
#include "compiler/graph/core/tensor_data.h"
#include "compiler/graph/passes/evaluate.h"
#include "tests/graph/random_graph.h"

namespace heddle::graph {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

// What a forest_walk of random trees is made of.
struct Trees {
  int64_t columns = 3, records = 40, groups = 1, trees = 4, values = 1, steps = 4;
  std::string reduce = "sum";
  int64_t leaves_of_tree =
      0;  // of the first tree; others have up to as many. 0: as the levels allow
  // Thresholds are drawn from these.
  std::vector<float> thresholds = {0.5F};

  int64_t nodes = 0;
  std::vector<int32_t> column, left;
  std::vector<float> threshold, leaves;
};

int64_t Below(TestRng& rng, int64_t n) {
  return static_cast<int64_t>(rng() % static_cast<uint64_t>(n));
}

// Tables for so many nodes of each tree.
void MakeRoom(Trees& t) {
  const auto all = static_cast<size_t>(t.groups * t.trees * t.nodes);
  t.column.assign(all, 0);
  t.left.assign(all, 0);
  t.threshold.assign(all, kNan);
  t.leaves.assign(all * static_cast<size_t>(t.values), 0);
}

// Nodes are numbered as EmitMargins numbers them: siblings lie side by side, behind their parents. Leaves are small whole
// numbers, whose sums are exact in any order.
void Grow(TestRng& rng, Trees& t) {
  t.nodes = int64_t{2} << t.steps;
  MakeRoom(t);
  for (int64_t tree = 0; tree < t.groups * t.trees; ++tree) {
    const auto at = static_cast<size_t>(tree * t.nodes);
    std::vector<int64_t> levels{0};  // of the nodes so far
    for (size_t n = 0; n < levels.size(); ++n) {
      if (levels[n] < t.steps && Below(rng, 5) != 0) {
        // Some numbers of columns are none.
        t.column[at + n] = static_cast<int32_t>(Below(rng, t.columns + 2) - 1);
        t.threshold[at + n] =
            t.thresholds[static_cast<size_t>(Below(rng, std::ssize(t.thresholds)))];
        t.left[at + n] = static_cast<int32_t>(levels.size());
        levels.insert(levels.end(), 2, levels[n] + 1);
        continue;
      }
      t.left[at + n] = static_cast<int32_t>(n);
      for (int64_t w = 0; w < t.values; ++w) {
        t.leaves[(at + n) * static_cast<size_t>(t.values) + static_cast<size_t>(w)] =
            static_cast<float>(Below(rng, 64) - 32);
      }
    }
  }
}

// Trees of few leaves that go deep: mostly, the leaf that was made last is split.
void GrowDeep(TestRng& rng, Trees& t) {
  t.nodes = 2 * t.leaves_of_tree;
  MakeRoom(t);
  for (int64_t tree = 0; tree < t.groups * t.trees; ++tree) {
    const auto at = static_cast<size_t>(tree * t.nodes);
    const int64_t leaves = tree == 0 ? t.leaves_of_tree : 1 + Below(rng, t.leaves_of_tree);
    std::vector<int64_t> levels{0};  // of the nodes so far
    std::vector<size_t> open{0};     // leaves that may be split
    for (int64_t n = 1; n < leaves && !open.empty();) {
      const size_t pick =
          Below(rng, 4) == 0 ? static_cast<size_t>(Below(rng, std::ssize(open))) : open.size() - 1;
      const size_t node = open[pick];
      open.erase(open.begin() + static_cast<std::ptrdiff_t>(pick));
      if (levels[node] == t.steps) continue;
      t.column[at + node] = static_cast<int32_t>(Below(rng, t.columns));
      t.threshold[at + node] =
          t.thresholds[static_cast<size_t>(Below(rng, std::ssize(t.thresholds)))];
      t.left[at + node] = static_cast<int32_t>(levels.size());
      for (int child = 0; child < 2; ++child) {
        open.insert(Below(rng, 2) == 0 ? open.end() : open.begin(), levels.size());
        levels.push_back(levels[node] + 1);
      }
      ++n;
    }
    for (size_t n = 0; n < levels.size(); ++n) {
      if (t.left[at + n] != 0) continue;
      t.left[at + n] = static_cast<int32_t>(n);
      for (int64_t w = 0; w < t.values; ++w)
        t.leaves[(at + n) * static_cast<size_t>(t.values) + static_cast<size_t>(w)] =
            static_cast<float>(Below(rng, 64) - 32);
    }
  }
}

Graph WalkOf(const Trees& t) {
  GraphBuilder out;
  const Shape nodes{t.groups, t.trees, t.nodes};
  const ValueId x = out.Input("x", {ir::DType::kF32, {t.columns, t.records}});
  const auto y = out.Add(
      OpKind::kForestWalk,
      {x, out.Constant("columns", FromElements(nodes, t.column)),
       out.Constant("thresholds", FromElements(nodes, t.threshold)),
       out.Constant("left", FromElements(nodes, t.left)),
       out.Constant("values", FromElements({t.groups, t.trees, t.nodes, t.values}, t.leaves))},
      {{"steps", t.steps}, {"reduce", t.reduce}}, "forest");
  EXPECT_TRUE(y.ok()) << y.status();
  return out.Build({{"y", *y}}).value();
}

// Values at, below and above thresholds, and those that compare in their own ways.
TensorData Records(TestRng& rng, const Trees& t) {
  const std::vector<float> special = {kNan, kInf, -kInf, 0.0F, -0.0F, 1e-45F, -1e-45F, 1e38F};
  std::vector<float> x;
  for (int64_t i = 0; i < t.columns * t.records; ++i) {
    const float near = t.thresholds[static_cast<size_t>(Below(rng, std::ssize(t.thresholds)))];
    switch (Below(rng, 4)) {
      case 0:
        x.push_back(special[static_cast<size_t>(Below(rng, std::ssize(special)))]);
        break;
      case 1:
        x.push_back(near);
        break;
      case 2:
        x.push_back(std::nextafter(near, kInf));
        break;
      default:
        x.push_back(std::nextafter(near, -kInf));
    }
  }
  return FromElements({t.columns, t.records}, x);
}

machine::TargetInfo Wide() {
  machine::TargetInfo wide;
  wide.vector_bytes = 64;
  return wide;
}

absl::StatusOr<Graph> InForm(const Graph& graph, ForestForm form,
                             const machine::TargetInfo& target = Wide()) {
  return AssignForestForms(graph, {.fixed = {{"forest", form}}}, target);
}

// The message of a refusal; empty if there is none.
std::string WhyNot(const Trees& t, ForestForm form, const machine::TargetInfo& target = Wide()) {
  return std::string(InForm(WalkOf(t), form, target).status().message());
}

const Node& RanksIn(const Graph& graph) {
  const auto ranks = std::find_if(graph.nodes.begin(), graph.nodes.end(), [](const Node& node) {
    return node.kind == OpKind::kForestRanks;
  });
  EXPECT_NE(ranks, graph.nodes.end());
  return *ranks;
}

const TensorType& TypeOf(const Graph& graph, ValueId v) {
  return graph.values[static_cast<size_t>(v)].type;
}

std::vector<float> EighthsApart(int count) {
  std::vector<float> values;
  for (int i = 0; i < count; ++i) values.push_back(static_cast<float>(i) / 8 - 3);
  return values;
}

TEST(ForestForms, EveryFormComputesWhatTheWalkDoes) {
  const std::vector<std::vector<float>> thresholds = {
      {0.5F},
      {0.0F, -0.0F, 1e-45F, -1e-45F, 1e-40F},
      {kInf, -kInf, 1, kNan, std::numeric_limits<float>::max()},
      EighthsApart(9),
      EighthsApart(255),
      EighthsApart(700)};
  int found[std::size(kForestForms)] = {};
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    TestRng rng(seed);
    Trees t;
    t.columns = Below(rng, 8) == 0 ? 300 : 1 + Below(rng, 6);
    t.records = Below(rng, 4) == 0 ? 1 : 1 + Below(rng, Below(rng, 4) == 0 ? 300 : 70);
    t.groups = 1 + Below(rng, 2);
    t.trees = 1 + Below(rng, Below(rng, 4) == 0 ? 80 : 9);
    t.values = Below(rng, 3) == 0 ? 3 : 1;
    t.steps = 1 + Below(rng, 8);
    t.reduce = std::vector<std::string>{"sum", "min", "max"}[static_cast<size_t>(Below(rng, 3))];
    t.thresholds = thresholds[seed % thresholds.size()];
    Grow(rng, t);
    const Graph walk = WalkOf(t);
    const TensorData x = Records(rng, t);
    const std::vector<double> expected = ToDoubles(EvaluateGraph(walk, {&x, 1}).value()[0]);
    for (const ForestForm form : kForestForms) {
      for (const int bytes : {16, 64}) {
        machine::TargetInfo target;
        target.vector_bytes = bytes;
        ForestForms plan;
        const auto made = AssignForestForms(walk, {.all = form, .plan = &plan}, target);
        ASSERT_TRUE(made.ok()) << made.status();
        ASSERT_TRUE(CheckGraph(*made).ok()) << CheckGraph(*made);
        if (plan.at("forest") != form) continue;
        ++found[static_cast<size_t>(form)];
        const auto result = EvaluateGraph(*made, {&x, 1});
        ASSERT_TRUE(result.ok()) << result.status() << "\n" << Print(*made);
        EXPECT_EQ(ToDoubles((*result)[0]), expected)
            << "seed " << seed << ", " << std::string(ForestFormName(form)) << "\n"
            << Print(*made);
      }
    }
  }
  EXPECT_EQ(found[static_cast<size_t>(ForestForm::kWalk)], 120);
  EXPECT_GT(found[static_cast<size_t>(ForestForm::kSelect)], 40);
  EXPECT_EQ(found[static_cast<size_t>(ForestForm::kRanks)], 120);
  EXPECT_GT(found[static_cast<size_t>(ForestForm::kLeaves)], 80);
}

const Node& LeavesIn(const Graph& graph) {
  const auto leaves = std::find_if(graph.nodes.begin(), graph.nodes.end(), [](const Node& node) {
    return node.kind == OpKind::kForestLeaves;
  });
  EXPECT_NE(leaves, graph.nodes.end());
  return *leaves;
}

// Deep trees of few leaves, in ranks or, if a column has too many thresholds, in floats. The places of leaves are signed bytes
// then, or as wide as floats.
TEST(ForestForms, LeavesOfDeepTreesAreThoseOfTheWalk) {
  const std::vector<std::vector<float>> thresholds = {{0.0F, -0.0F, 1e-45F, kNan},
                                                      {kInf, -kInf, 1, kNan},
                                                      EighthsApart(9),
                                                      EighthsApart(700),
                                                      EighthsApart(30000)};
  int in_floats = 0;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    TestRng rng(seed);
    Trees t;
    t.columns = 1 + Below(rng, 6);
    t.records = Below(rng, 3) == 0 ? 1 : 1 + Below(rng, 70);
    t.groups = 1 + Below(rng, 2);
    t.trees = 1 + Below(rng, Below(rng, 4) == 0 ? 40 : 9);
    t.values = Below(rng, 3) == 0 ? 3 : 1;
    t.steps = 9 + Below(rng, 40);
    t.leaves_of_tree =
        std::vector<int64_t>{2, 3, 20, 64, 127, 128}[static_cast<size_t>(Below(rng, 6))];
    t.reduce = std::vector<std::string>{"sum", "min", "max"}[static_cast<size_t>(Below(rng, 3))];
    t.thresholds = thresholds[seed % thresholds.size()];
    if (t.thresholds.size() > 1020) {
      t.columns = 1;
      t.trees = 30;
      t.leaves_of_tree = 128;
    }
    GrowDeep(rng, t);
    const Graph walk = WalkOf(t);
    const TensorData x = Records(rng, t);
    const std::vector<double> expected = ToDoubles(EvaluateGraph(walk, {&x, 1}).value()[0]);
    for (const int bytes : {16, 32, 64}) {
      machine::TargetInfo target;
      target.vector_bytes = bytes;
      const auto made = InForm(walk, ForestForm::kLeaves, target);
      ASSERT_TRUE(made.ok()) << made.status();
      ASSERT_TRUE(CheckGraph(*made).ok()) << CheckGraph(*made);
      const auto result = EvaluateGraph(*made, {&x, 1});
      ASSERT_TRUE(result.ok()) << result.status() << "\n" << Print(*made);
      EXPECT_EQ(ToDoubles((*result)[0]), expected) << "seed " << seed << "\n" << Print(*made);
      const Node& leaves = LeavesIn(*made);
      const TensorType& spans = TypeOf(*made, leaves.inputs[3]);
      if (TypeOf(*made, leaves.inputs[0]).dtype == ir::DType::kF32) {
        ++in_floats;
        EXPECT_EQ(spans.dtype, ir::DType::kI32);
      } else {
        EXPECT_EQ(spans.dtype, ir::DType::kI8);
      }
    }
  }
  EXPECT_GT(in_floats, 3);
}

TEST(ForestForms, LeavesNeedFewOfThem) {
  TestRng rng(12);
  Trees t;
  t.steps = 512;
  t.columns = 1;
  t.thresholds = EighthsApart(300);
  for (const auto& [leaves, fits] :
       std::vector<std::pair<int64_t, bool>>{{2, true}, {127, true}, {128, true}, {129, false}}) {
    t.leaves_of_tree = leaves;
    GrowDeep(rng, t);
    const Graph walk = WalkOf(t);
    const auto made = InForm(walk, ForestForm::kLeaves);
    EXPECT_EQ(made.ok(), fits) << leaves << ": " << made.status();
    if (!made.ok()) {
      EXPECT_THAT(std::string(made.status().message()),
                  AllOf(HasSubstr("has no form 'leaves': a tree has more than 128 leaves"),
                        HasSubstr("choose 'walk'")));
      continue;
    }
    // As many nodes as the largest tree has.
    EXPECT_EQ(TypeOf(*made, LeavesIn(*made).inputs[3]).shape, (Shape{1, 4, leaves - 1, 1}));
  }
  t.leaves_of_tree = 20;
  GrowDeep(rng, t);
  machine::TargetInfo gpu;
  gpu.execution = machine::Execution::kGrid;
  EXPECT_THAT(WhyNot(t, ForestForm::kLeaves, gpu), HasSubstr("a GPU has no lanes of bytes"));
}

// Each column of more thresholds than a byte counts stands there in parts. A refusal says why, and what to do.
TEST(ForestForms, RanksNeedFewThresholdsAndLevels) {
  TestRng rng(1);
  Trees t;
  t.trees = 40;
  t.steps = 8;
  t.columns = 1;
  for (const auto& [thresholds, parts] :
       std::vector<std::pair<int, int64_t>>{{255, 1}, {256, 2}, {510, 2}, {511, 3}, {1020, 4}}) {
    t.thresholds = EighthsApart(thresholds);
    Grow(rng, t);
    // Each threshold is asked at least once.
    size_t next = 0;
    for (float& threshold : t.threshold) {
      if (std::isnan(threshold)) continue;
      threshold = t.thresholds[next++ % t.thresholds.size()];
    }
    for (int32_t& column : t.column) column = 0;
    ASSERT_GE(next, t.thresholds.size());
    const auto made = InForm(WalkOf(t), ForestForm::kRanks);
    ASSERT_TRUE(made.ok()) << made.status();
    const Node& ranks = RanksIn(*made);
    EXPECT_EQ(TypeOf(*made, ranks.inputs[0]).shape[0], parts) << thresholds;
    const TensorData x = Records(rng, t);
    EXPECT_EQ(ToDoubles(EvaluateGraph(*made, {&x, 1}).value()[0]),
              ToDoubles(EvaluateGraph(WalkOf(t), {&x, 1}).value()[0]));
  }
  t.thresholds = EighthsApart(3000);
  Grow(rng, t);
  EXPECT_THAT(WhyNot(t, ForestForm::kRanks),
              AllOf(HasSubstr("the forest 'forest' has no form 'ranks'"),
                    HasSubstr("too many different thresholds; 1020 are the most"),
                    HasSubstr("choose 'walk'")));
  t.thresholds = EighthsApart(9);
  t.steps = 9;
  Grow(rng, t);
  EXPECT_THAT(WhyNot(t, ForestForm::kRanks), HasSubstr("it has 9 levels, and 8 are the most"));
  EXPECT_THAT(WhyNot(t, ForestForm::kSelect), HasSubstr("it has 9 levels"));
  t.steps = 8;
  Grow(rng, t);
  EXPECT_EQ(WhyNot(t, ForestForm::kRanks), "");
  EXPECT_THAT(WhyNot(t, ForestForm::kSelect), HasSubstr("it has 8 levels, and 7 are the most"));
  t.steps = 4;
  t.values = 3;
  Grow(rng, t);
  EXPECT_THAT(WhyNot(t, ForestForm::kSelect), HasSubstr("its leaves have 3 values, not one"));
  machine::TargetInfo gpu;
  gpu.execution = machine::Execution::kGrid;
  EXPECT_THAT(WhyNot(t, ForestForm::kRanks, gpu), HasSubstr("a GPU has no lanes of bytes"));
}

// A tree whose leaf sends some values on is no tree.
TEST(ForestForms, OnlyTreesHaveOtherForms) {
  TestRng rng(2);
  Trees t;
  Grow(rng, t);
  for (size_t i = 0; i < t.threshold.size(); ++i) {
    if (std::isnan(t.threshold[i]) && t.left[i] != 0) t.threshold[i] = 0.5F;
  }
  EXPECT_THAT(WhyNot(t, ForestForm::kSelect), HasSubstr("are not those of trees"));
  EXPECT_THAT(WhyNot(t, ForestForm::kRanks), HasSubstr("are not those of trees"));
  EXPECT_THAT(WhyNot(t, ForestForm::kLeaves), HasSubstr("are not those of trees"));
}

ForestForm EstimatedOf(int64_t records, int64_t steps, int thresholds,
                       const machine::TargetInfo& target, int64_t trees = 100) {
  TestRng rng(3);
  Trees t;
  t.records = records;
  t.steps = steps;
  t.trees = trees;
  t.columns = 8;
  t.thresholds = EighthsApart(thresholds);
  Grow(rng, t);
  ForestForms plan;
  EXPECT_TRUE(AssignForestForms(WalkOf(t), {.plan = &plan}, target).ok());
  return plan.at("forest");
}

TEST(ForestForms, TheEstimateDependsOnRecordsAndLevels) {
  EXPECT_EQ(EstimatedOf(10000, 6, 100, Wide()), ForestForm::kRanks);
  EXPECT_EQ(EstimatedOf(2, 8, 100, Wide()), ForestForm::kWalk);
  EXPECT_EQ(EstimatedOf(10000, 2, 100, Wide()), ForestForm::kSelect);
  // Of one record and few levels, counting ranks takes longer than asking all nodes of vectors of trees.
  EXPECT_EQ(EstimatedOf(1, 2, 100, Wide(), 112), ForestForm::kSelect);
  // Deep trees of few leaves have no other form than walks.
  TestRng rng(3);
  Trees t;
  t.records = 100;
  t.steps = 12;
  t.trees = 100;
  t.leaves_of_tree = 40;
  t.thresholds = EighthsApart(100);
  GrowDeep(rng, t);
  ForestForms plan;
  ASSERT_TRUE(AssignForestForms(WalkOf(t), {.plan = &plan}, Wide()).ok());
  EXPECT_EQ(plan.at("forest"), ForestForm::kLeaves);
  machine::TargetInfo gpu = Wide();
  gpu.execution = machine::Execution::kGrid;
  EXPECT_EQ(EstimatedOf(10000, 6, 100, gpu), ForestForm::kWalk);
}

// The trees of a single record fill vectors, if a register holds its ranks.
TEST(ForestForms, TreesOfOneRecordStandInBlocks) {
  TestRng rng(6);
  for (const auto& [columns, trees, block, padded] : std::vector<std::array<int64_t, 4>>{
           {64, 100, 64, 128}, {64, 64, 64, 64}, {3, 16, 1, 16}, {65, 100, 1, 100}}) {
    Trees t;
    t.records = 1;
    t.columns = columns;
    t.trees = trees;
    t.groups = 2;
    t.thresholds = EighthsApart(21);
    t.reduce = "max";
    Grow(rng, t);
    const Graph walk = WalkOf(t);
    const Graph made = InForm(walk, ForestForm::kRanks).value();
    EXPECT_EQ(TypeOf(made, RanksIn(made).inputs[1]).shape, (Shape{2, padded / block, 15, block}));
    const TensorData x = Records(rng, t);
    EXPECT_EQ(ToDoubles(EvaluateGraph(made, {&x, 1}).value()[0]),
              ToDoubles(EvaluateGraph(walk, {&x, 1}).value()[0]));
  }
}

// In floats, they do if their number fills vectors, and columns are few enough to be looked up in registers.
TEST(ForestForms, SelectHasTreesOfOneRecordInBlocks) {
  TestRng rng(7);
  for (const auto& [columns, trees, records, block] : std::vector<std::array<int64_t, 4>>{
           {28, 112, 1, 16}, {300, 16, 1, 1}, {3, 100, 1, 1}, {28, 112, 2, 1}}) {
    Trees t;
    t.records = records;
    t.columns = columns;
    t.trees = trees;
    t.groups = 2;
    t.thresholds = {0.0F, -0.0F, 0.5F, kInf, -kInf, kNan, 1e-45F};
    Grow(rng, t);
    const Graph walk = WalkOf(t);
    const Graph made = InForm(walk, ForestForm::kSelect).value();
    const auto select = std::find_if(made.nodes.begin(), made.nodes.end(), [](const Node& node) {
      return node.kind == OpKind::kForestSelect;
    });
    ASSERT_NE(select, made.nodes.end());
    Shape nodes{2, trees / block, 15};
    if (block > 1) nodes.push_back(block);
    EXPECT_EQ(TypeOf(made, select->inputs[1]).shape, nodes);
    EXPECT_EQ(TypeOf(made, select->inputs[3]).shape, (Shape{2, trees / block, 16, block}));
    const TensorData x = Records(rng, t);
    EXPECT_EQ(ToDoubles(EvaluateGraph(made, {&x, 1}).value()[0]),
              ToDoubles(EvaluateGraph(walk, {&x, 1}).value()[0]));
  }
}

TEST(ForestForms, RecordsFillVectors) {
  TestRng rng(4);
  for (const auto& [records, padded] : std::vector<std::pair<int64_t, int64_t>>{
           {2, 64}, {64, 64}, {65, 128}, {200, 256}, {2048, 2112}, {10000, 10048}}) {
    Trees t;
    t.records = records;
    Grow(rng, t);
    const Graph made = InForm(WalkOf(t), ForestForm::kRanks).value();
    EXPECT_EQ(TypeOf(made, RanksIn(made).inputs[0]),
              (TensorType{ir::DType::kU8, {t.columns, padded}}));
    EXPECT_EQ(TypeOf(made, made.outputs[0]).shape[2], records);
  }
}

// Forms that ask floats have columns that are no multiple of a page apart, if there are many. They compute what the walk does.
TEST(ForestForms, ColumnsHaveSetsOfTheirOwn) {
  TestRng rng(6);
  machine::TargetInfo grid = Wide();
  grid.execution = machine::Execution::kGrid;
  for (const auto& [columns, records, padded] : std::vector<std::array<int64_t, 3>>{
           {9, 2048, 2080}, {9, 1024, 1056}, {9, 2000, 2000}, {8, 2048, 2048}}) {
    Trees t;
    t.columns = columns;
    t.records = records;
    Grow(rng, t);
    const Graph walk = WalkOf(t);
    for (const auto& [form, kind] : {std::pair(ForestForm::kWalk, OpKind::kForestWalk),
                                     std::pair(ForestForm::kSelect, OpKind::kForestSelect)}) {
      const auto asked = [&](const Graph& made) {
        const auto forest = std::find_if(made.nodes.begin(), made.nodes.end(),
                                         [&](const Node& node) { return node.kind == kind; });
        EXPECT_EQ(forest->name, "forest");
        return TypeOf(made, forest->inputs[0]).shape;
      };
      const Graph made = InForm(walk, form).value();
      EXPECT_EQ(asked(made), (Shape{columns, padded}));
      EXPECT_EQ(TypeOf(made, made.outputs[0]), TypeOf(walk, walk.outputs[0]));
      EXPECT_EQ(asked(InForm(walk, form, grid).value()), (Shape{columns, records}));
      const TensorData x = Records(rng, t);
      EXPECT_EQ(ToDoubles(EvaluateGraph(made, {&x, 1}).value()[0]),
                ToDoubles(EvaluateGraph(walk, {&x, 1}).value()[0]));
    }
  }
}

// ---- The operators ----

std::string Refusal(OpKind kind, const std::vector<TensorType>& in, const Attrs& attrs = {}) {
  return std::string(InferType(kind, in, attrs).status().message());
}

TEST(Digitize, CountsTheCutsThatAreNotAbove) {
  const TensorData x = FromElements<float>({2, 3}, {-kInf, -0.0F, kInf, kNan, 2, 1.5F});
  const TensorData cuts =
      FromElements<float>({2, 3}, {-1, 0, kInf, 1.5F, std::nextafter(2.0F, 3.0F), kNan});
  const auto found = EvaluateOp(OpKind::kDigitize, {}, std::vector{x, cuts});
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(ToInts(*found), (std::vector<int64_t>{0, 2, 3, 0, 1, 1}));
}

// In two steps as in one: values at, below and above every cut, with the last group in part.
TEST(Digitize, CountsInGroupsWhatItCountsOneByOne) {
  TestRng rng(8);
  for (const auto& [count, groups, of_group] :
       std::vector<std::array<int64_t, 3>>{{255, 16, 16}, {33, 11, 3}, {7, 4, 2}, {4, 2, 2}}) {
    constexpr int64_t kColumns = 2, kRecords = 400;
    std::vector<float> cuts, last, grouped;
    for (int64_t k = 0; k < kColumns; ++k) {
      std::vector<float> row(static_cast<size_t>(groups * of_group), kNan);
      for (int64_t c = 0; c < count; ++c)
        row[static_cast<size_t>(c)] =
            c + 1 == count && k == 1 ? kInf : static_cast<float>(c * c) - 9;
      cuts.insert(cuts.end(), row.begin(), row.end());
      for (int64_t g = 1; g < groups; ++g)
        last.push_back(row[static_cast<size_t>(g * of_group - 1)]);
      for (int64_t j = 0; j < of_group; ++j) {
        for (int64_t g = 0; g < groups; ++g)
          grouped.push_back(row[static_cast<size_t>(g * of_group + j)]);
      }
    }
    std::vector<float> values;
    for (int64_t i = 0; i < kColumns * kRecords; ++i) {
      const float cut = static_cast<float>(Below(rng, count * count)) - 9;
      const float special[] = {
          kNan, kInf, -kInf, cut, std::nextafter(cut, kInf), std::nextafter(cut, -kInf)};
      values.push_back(special[Below(rng, 6)]);
    }
    const TensorData x = FromElements({kColumns, kRecords}, values);
    const auto one = EvaluateOp(OpKind::kDigitize, {},
                                std::vector{x, FromElements({kColumns, groups * of_group}, cuts)});
    const auto two = EvaluateOp(OpKind::kDigitize, {},
                                std::vector{x, FromElements({kColumns, groups - 1}, last),
                                            FromElements({kColumns, of_group, groups}, grouped)});
    ASSERT_TRUE(one.ok()) << one.status();
    ASSERT_TRUE(two.ok()) << two.status();
    EXPECT_EQ(ToInts(*two), ToInts(*one)) << count;
  }
}

// The last entry of a row is never counted, so rows here have one more.
TEST(Digitize, CountsByHalvingWhatItCountsOneByOne) {
  TestRng rng(9);
  for (const auto& [count, entries] :
       std::vector<std::array<int64_t, 2>>{{255, 256}, {130, 256}, {33, 64}, {3, 4}, {1, 2}}) {
    constexpr int64_t kColumns = 300;
    std::vector<float> cuts(static_cast<size_t>(kColumns * entries), kNan), values;
    for (int64_t k = 0; k < kColumns; ++k) {
      for (int64_t c = 0; c < count; ++c)
        cuts[static_cast<size_t>(k * entries + c)] =
            c + 1 == count && k % 2 == 1 ? kInf : static_cast<float>(c * c) - 9;
      const float cut = static_cast<float>(Below(rng, count * count)) - 9;
      const float special[] = {
          kNan, kInf, -kInf, cut, std::nextafter(cut, kInf), std::nextafter(cut, -kInf)};
      values.push_back(special[Below(rng, 6)]);
    }
    const std::vector operands{FromElements({kColumns, 1}, values),
                               FromElements({kColumns, entries}, cuts)};
    const auto one = EvaluateOp(OpKind::kDigitize, {}, operands);
    const auto halved = EvaluateOp(OpKind::kDigitize, {{"sorted", int64_t{1}}}, operands);
    ASSERT_TRUE(one.ok()) << one.status();
    ASSERT_TRUE(halved.ok()) << halved.status();
    EXPECT_EQ(ToInts(*halved), ToInts(*one)) << count;
  }
}

// Of one record, many thresholds are counted by halving, and few in the lanes of vectors.
TEST(ForestForms, RanksOfOneRecordAreFoundByHalving) {
  TestRng rng(10);
  for (const int64_t thresholds : {21, 40, 255}) {
    Trees t;
    t.records = 1;
    t.columns = 5;
    t.trees = 600;
    t.thresholds = EighthsApart(thresholds);
    t.reduce = "max";
    Grow(rng, t);
    const Graph walk = WalkOf(t);
    const Graph made = InForm(walk, ForestForm::kRanks).value();
    const auto counts = std::find_if(made.nodes.begin(), made.nodes.end(), [](const Node& node) {
      return node.kind == OpKind::kDigitize;
    });
    ASSERT_NE(counts, made.nodes.end());
    EXPECT_EQ(AttrsOf(*counts).Int("sorted"), thresholds > 32) << thresholds;
    for (int i = 0; i < 20; ++i) {
      const TensorData x = Records(rng, t);
      EXPECT_EQ(ToDoubles(EvaluateGraph(made, {&x, 1}).value()[0]),
                ToDoubles(EvaluateGraph(walk, {&x, 1}).value()[0]));
    }
  }
}

TEST(Digitize, RefusesWhatDoesNotFit) {
  const TensorType x{ir::DType::kF32, {3, 8}};
  EXPECT_EQ(Refusal(OpKind::kDigitize, {x, {ir::DType::kF32, {3, 256}}}), "");
  EXPECT_THAT(Refusal(OpKind::kDigitize, {x, {ir::DType::kF32, {3, 257}}}),
              HasSubstr("at most 256"));
  EXPECT_THAT(Refusal(OpKind::kDigitize, {x, {ir::DType::kF32, {2, 4}}}), HasSubstr("cuts are"));
  EXPECT_THAT(Refusal(OpKind::kDigitize, {x, {ir::DType::kF64, {3, 4}}}), HasSubstr("of its type"));
  EXPECT_THAT(Refusal(OpKind::kDigitize, {{ir::DType::kI32, {3, 8}}, x}), HasSubstr("not floats"));
  const auto sorted = [&](const std::vector<TensorType>& types) {
    return Refusal(OpKind::kDigitize, types, {{"sorted", int64_t{1}}});
  };
  EXPECT_EQ(sorted({x, {ir::DType::kF32, {3, 256}}}), "");
  EXPECT_THAT(sorted({x, {ir::DType::kF32, {3, 255}}}), HasSubstr("there must be 2, 4, 8"));
  EXPECT_THAT(sorted({x, {ir::DType::kF32, {3, 1}}}), HasSubstr("there must be 2, 4, 8"));
  const TensorType last{ir::DType::kF32, {3, 15}};
  EXPECT_EQ(Refusal(OpKind::kDigitize, {x, last, {ir::DType::kF32, {3, 16, 16}}}), "");
  EXPECT_THAT(Refusal(OpKind::kDigitize, {x, last, {ir::DType::kF32, {3, 17, 16}}}),
              HasSubstr("grouped cuts are"));
  EXPECT_THAT(Refusal(OpKind::kDigitize, {x, last, {ir::DType::kF32, {3, 16, 15}}}),
              HasSubstr("grouped cuts are"));
}

TEST(ForestSelect, RefusesWhatDoesNotFit) {
  const auto refusal = [](const Shape& nodes, const Shape& values) {
    const std::vector<TensorType> in = {{ir::DType::kF32, {3, 1}},
                                        {ir::DType::kI32, nodes},
                                        {ir::DType::kF32, nodes},
                                        {ir::DType::kF32, values}};
    return std::string(
        InferType(OpKind::kForestSelect, in, {{"depth", int64_t{2}}}).status().message());
  };
  EXPECT_EQ(refusal({1, 6, 3}, {1, 6, 4, 1}), "");
  EXPECT_EQ(refusal({1, 3, 3, 2}, {1, 3, 4, 2}), "");
  EXPECT_THAT(refusal({1, 3, 3, 2}, {1, 3, 4, 1}), HasSubstr("2 trees stand side by side"));
  EXPECT_THAT(refusal({1, 6, 3}, {1, 6, 4, 2}), HasSubstr("a leaf has one value"));
  EXPECT_THAT(refusal({1, 3, 2, 2}, {1, 3, 4, 2}), HasSubstr("a tree has 3 nodes"));
  EXPECT_THAT(refusal({3, 3}, {1, 3, 4, 2}), HasSubstr("trees in a block]"));
}

TEST(ForestRanks, RefusesWhatDoesNotFit) {
  const auto u8 = [](Shape shape) { return TensorType{ir::DType::kU8, std::move(shape)}; };
  const TensorType x = u8({3, 8}), values{ir::DType::kF32, {1, 6, 4, 2}};
  EXPECT_EQ(Refusal(OpKind::kForestRanks, {x, u8({1, 3, 3, 2}), u8({1, 3, 3, 2}), values}), "");
  EXPECT_THAT(Refusal(OpKind::kForestRanks,
                      {{ir::DType::kF32, {3, 8}}, u8({1, 3, 3, 2}), u8({1, 3, 3, 2}), values}),
              HasSubstr("x is f32[3,8]"));
  EXPECT_THAT(Refusal(OpKind::kForestRanks, {x, u8({1, 3, 4, 2}), u8({1, 3, 4, 2}), values}),
              HasSubstr("2^depth - 1"));
  EXPECT_THAT(Refusal(OpKind::kForestRanks, {x, u8({1, 3, 511, 2}), u8({1, 3, 511, 2}), values}),
              HasSubstr("at most 255"));
  EXPECT_THAT(Refusal(OpKind::kForestRanks, {x, u8({1, 3, 3, 2}), u8({1, 6, 3, 1}), values}),
              HasSubstr("thresholds are"));
  EXPECT_THAT(Refusal(OpKind::kForestRanks,
                      {x, u8({1, 3, 3, 2}), u8({1, 3, 3, 2}), {ir::DType::kF32, {1, 3, 4, 2}}}),
              HasSubstr("values are"));
}

TEST(ForestLeaves, RefusesWhatDoesNotFit) {
  const auto of = [](ir::DType dtype, Shape shape) { return TensorType{dtype, std::move(shape)}; };
  const auto refusal = [&](ir::DType x, ir::DType thresholds, const TensorType& spans,
                           int64_t leaves = 6) {
    const Shape nodes{1, 3, 5, 2};
    return Refusal(OpKind::kForestLeaves,
                   {of(x, {3, 8}), of(ir::DType::kU8, nodes), of(thresholds, nodes), spans,
                    of(ir::DType::kF32, {1, 6, leaves, 2})});
  };
  constexpr ir::DType kU8 = ir::DType::kU8, kF32 = ir::DType::kF32, kI8 = ir::DType::kI8;
  const Shape nodes{1, 3, 5, 2};
  EXPECT_EQ(refusal(kU8, kU8, of(kI8, nodes)), "");
  EXPECT_EQ(refusal(kF32, kF32, of(ir::DType::kI32, nodes)), "");
  EXPECT_THAT(refusal(kI8, kI8, of(kI8, nodes)), HasSubstr("x is i8[3,8]"));
  EXPECT_THAT(refusal(kU8, kF32, of(kI8, nodes)), HasSubstr("thresholds are"));
  EXPECT_THAT(refusal(kU8, kU8, of(kF32, nodes)), HasSubstr("spans are"));
  EXPECT_THAT(refusal(kU8, kU8, of(kI8, {1, 6, 5, 1})), HasSubstr("spans are"));
  EXPECT_THAT(refusal(kU8, kU8, of(kI8, nodes), 5), HasSubstr("values are"));
  const auto many = [&](int64_t count, ir::DType spans) {
    const Shape all{1, 1, count, 1};
    return Refusal(OpKind::kForestLeaves, {of(kU8, {3, 8}), of(kU8, all), of(kU8, all),
                                           of(spans, all), of(kF32, {1, 1, count + 1, 1})});
  };
  EXPECT_EQ(many(127, kI8), "");
  EXPECT_THAT(many(128, kI8), HasSubstr("a tree may have 127 nodes"));
  EXPECT_EQ(many(255, kU8), "");
  EXPECT_THAT(many(256, kU8), HasSubstr("a tree may have 255 nodes"));
}

// What a memo knows of one forest is not taken for another one.
TEST(ForestForms, AMemoChangesNothing) {
  FoldMemo memo;
  TestRng rng(11);
  for (int round = 0; round < 15; ++round) {
    Trees t;
    t.trees = 1 + Below(rng, 40);
    t.thresholds = EighthsApart(1 << Below(rng, 10));
    Grow(rng, t);
    const Graph graph = WalkOf(t);
    const std::vector<TensorData> inputs = {Records(rng, t)};
    for (const ForestForm form : kForestForms) {
      const Graph plain = AssignForestForms(graph, {.all = form}, Wide()).value();
      const std::vector<TensorData> expected = *EvaluateGraph(plain, inputs);
      for (int again = 0; again < 2; ++again) {
        const Graph known = AssignForestForms(graph, {.all = form}, Wide(), &memo).value();
        ASSERT_EQ(Print(known), Print(plain)) << "round " << round;
        ASSERT_EQ(Difference(*EvaluateGraph(known, inputs), expected), 0)
            << "round " << round << ", " << std::string(ForestFormName(form));
      }
    }
  }
}

// Trees may stand in blocks. A column that is none reads the last one.
TEST(ForestRanks, BlocksOfTreesAreTheSameTrees) {
  TestRng rng(5);
  for (int round = 0; round < 20; ++round) {
    const int64_t depth = 1 + Below(rng, 4), inner = (int64_t{1} << depth) - 1, trees = 12;
    const auto draw = [&](int64_t count, int64_t below) {
      std::vector<uint8_t> values;
      for (int64_t i = 0; i < count; ++i) values.push_back(static_cast<uint8_t>(Below(rng, below)));
      return values;
    };
    const std::vector<uint8_t> columns = draw(trees * inner, 5),
                               thresholds = draw(trees * inner, 9);
    const TensorData x = FromElements({4, 7}, draw(4 * 7, 9));
    std::vector<float> leaves;
    for (int64_t i = 0; i < trees * (inner + 1); ++i)
      leaves.push_back(static_cast<float>(Below(rng, 64)));
    std::vector<std::vector<double>> results;
    for (const int64_t block : {1, 4, 12}) {
      // [trees, nodes] as [trees / block, nodes, block].
      const auto blocked = [&](const std::vector<uint8_t>& table) {
        std::vector<uint8_t> made;
        for (int64_t s = 0; s < trees / block; ++s) {
          for (int64_t n = 0; n < inner; ++n) {
            for (int64_t b = 0; b < block; ++b)
              made.push_back(table[static_cast<size_t>((s * block + b) * inner + n)]);
          }
        }
        return FromElements({1, trees / block, inner, block}, made);
      };
      const auto found = EvaluateOp(OpKind::kForestRanks, {},
                                    std::vector{x, blocked(columns), blocked(thresholds),
                                                FromElements({1, trees, inner + 1, 1}, leaves)});
      ASSERT_TRUE(found.ok()) << found.status();
      results.push_back(ToDoubles(*found));
    }
    EXPECT_EQ(results[1], results[0]);
    EXPECT_EQ(results[2], results[0]);
    // A walk over the first table, in plain code.
    for (int64_t r = 0; r < 7; ++r) {
      double sum = 0;
      for (int64_t t = 0; t < trees; ++t) {
        int64_t node = 0;
        while (node < inner) {
          const auto at = static_cast<size_t>(t * inner + node);
          const int64_t column = std::min<int64_t>(columns[at], 3);
          const auto value = static_cast<uint8_t>((*x.bytes)[static_cast<size_t>(column * 7 + r)]);
          node = 2 * node + (value >= thresholds[at] ? 2 : 1);
        }
        sum += leaves[static_cast<size_t>(t * (inner + 1) + node - inner)];
      }
      EXPECT_EQ(results[0][static_cast<size_t>(r)], sum);
    }
  }
}

}  // namespace
}  // namespace heddle::graph
