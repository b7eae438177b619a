// Forests as graphs: what the operators compute is what a walk over the forest itself finds.
#include "compiler/classical/emit_forest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <random>
#include <utility>

#include "compiler/classical/import_forest.h"
#include "compiler/classical/sample_values.h"
#include "compiler/graph/core/tensor_data.h"
#include "compiler/graph/passes/evaluate.h"
#include "compiler/graph/passes/forest_forms.h"
#include "compiler/graph/passes/independent_rows.h"
#include "compiler/graph/passes/passes.h"
#include "tests/graph/random_graph.h"

namespace heddle::classical {
namespace {

using graph::TestRng;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

int Below(TestRng& rng, int n) { return static_cast<int>(rng() % static_cast<uint64_t>(n)); }

// Values that trees and missing values are about: thresholds of RandomTree are multiples of 1/4.
float RandomValue(TestRng& rng) {
  switch (Below(rng, 12)) {
    case 0:
      return kNan;
    case 1:
      return 0;
    case 2:
      return -0.0F;
    case 3:
      return 1e-36F;
    case 4:
      return Below(rng, 2) ? kInf : -kInf;
    default:
      return static_cast<float>(Below(rng, 33) - 16) / 4;  // -0.5 and -0.25 are among them
  }
}

Column RandomColumn(TestRng& rng, int features) {
  Column column;
  column.feature = Below(rng, features);
  if (Below(rng, 3) == 0) column.missing = Column::Missing::kNanOrZero;
  if (Below(rng, 3) == 0) {
    column.kind = Column::Kind::kMember;
    column.instead = static_cast<float>(Below(rng, 2));
    column.from_zero = Below(rng, 2) == 0;
    for (int64_t m = 0; m < 4; ++m) {
      if (Below(rng, 2)) column.members.push_back(m);
    }
  } else {
    column.instead = Below(rng, 2) ? kInf : -kInf;
  }
  return column;
}

// Nodes in preorder. Leaves are numbered as they are made.
int Grow(TestRng& rng, const std::vector<Column>& columns, int depth, Tree& tree, int& leaves) {
  if (depth == 0 || Below(rng, 4) == 0) return ~leaves++;
  const auto at = static_cast<int>(tree.nodes.size());
  const int column = Below(rng, static_cast<int>(columns.size()));
  const bool member = columns[static_cast<size_t>(column)].kind == Column::Kind::kMember;
  tree.nodes.push_back({column, member ? 1 : static_cast<float>(Below(rng, 17) - 8) / 4});
  const int left = Grow(rng, columns, depth - 1, tree, leaves);
  const int right = Grow(rng, columns, depth - 1, tree, leaves);
  tree.nodes[static_cast<size_t>(at)].left = left;
  tree.nodes[static_cast<size_t>(at)].right = right;
  return at;
}

Forest RandomForest(TestRng& rng, int depth) {
  Forest forest;
  forest.features = 1 + Below(rng, 5);
  const int columns = 1 + Below(rng, 6);
  ColumnNumbers numbers(forest);
  for (int k = 0; k < columns; ++k) numbers.Add(RandomColumn(rng, forest.features));
  forest.outputs = 1 + Below(rng, 3);
  forest.aggregate = static_cast<Aggregate>(Below(rng, 4));
  const bool vectors = Below(rng, 3) == 0;
  // Every output has a tree: otherwise a minimum is over nothing.
  const int trees = forest.outputs + Below(rng, 20);
  for (int t = 0; t < trees; ++t) {
    Tree tree;
    int leaves = 0;
    Grow(rng, forest.columns, depth, tree, leaves);
    tree.target = vectors ? -1 : t % forest.outputs;
    for (int k = 0; k < leaves * (vectors ? forest.outputs : 1); ++k)
      tree.leaves.push_back(static_cast<float>(Below(rng, 2001) - 1000) / 500);
    forest.trees.push_back(std::move(tree));
  }
  for (int k = 0; k < forest.outputs; ++k)
    forest.base.push_back(Below(rng, 2) ? 0 : static_cast<float>(Below(rng, 9)) / 8);
  if (Below(rng, 3) == 0) forest.scale = 0.5F;
  return forest;
}

graph::TensorData RandomRows(TestRng& rng, int64_t rows, int64_t features) {
  std::string bytes(static_cast<size_t>(rows * features) * sizeof(float), 0);
  for (int64_t i = 0; i < rows * features; ++i) {
    const float value = RandomValue(rng);
    std::memcpy(bytes.data() + static_cast<size_t>(i) * sizeof(float), &value, sizeof(float));
  }
  return {{ir::DType::kF32, {rows, features}}, SharedBytes::Of(std::move(bytes))};
}

const float* Floats(const graph::TensorData& data) {
  return reinterpret_cast<const float*>(data.bytes->data());
}

graph::Graph MarginGraph(const Forest& forest, int64_t rows) {
  graph::GraphBuilder out;
  const graph::ValueId x = out.Input("x", {ir::DType::kF32, {rows, forest.features}});
  const absl::StatusOr<graph::ValueId> margins = EmitMargins(out, x, forest);
  EXPECT_TRUE(margins.ok()) << margins.status();
  return out.Build({{"margins", *margins}}).value();
}

// In every form.
TEST(EmitForest, RandomForests) {
  int found_forms[std::size(graph::kForestForms)] = {};
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    TestRng rng(seed);
    const Forest forest = RandomForest(rng, 1 + Below(rng, 6));
    ASSERT_TRUE(CheckForest(forest).ok()) << CheckForest(forest);
    constexpr int64_t kRows = 40;
    const graph::TensorData x = RandomRows(rng, kRows, forest.features);
    const graph::Graph imported = MarginGraph(forest, kRows);
    std::vector<std::optional<graph::ForestForm>> wanted{std::nullopt};
    wanted.insert(wanted.end(), std::begin(graph::kForestForms), std::end(graph::kForestForms));
    for (const auto form : wanted) {
      graph::ForestForms forms;
      graph::PassOptions options;
      options.forests.all = form;
      options.forests.plan = &forms;
      const graph::Graph made = graph::Optimize(imported, options).value();
      ASSERT_EQ(forms.size(), 1);
      if (form == forms.begin()->second) ++found_forms[static_cast<size_t>(*form)];
      const auto found = graph::EvaluateGraph(made, {&x, 1});
      ASSERT_TRUE(found.ok()) << found.status();
      for (int64_t r = 0; r < kRows; ++r) {
        const std::vector<double> expected = Margins(
            forest, {Floats(x) + r * forest.features, static_cast<size_t>(forest.features)});
        for (int k = 0; k < forest.outputs; ++k) {
          EXPECT_NEAR(Floats((*found)[0])[r * forest.outputs + k], expected[static_cast<size_t>(k)],
                      1e-4)
              << "seed " << seed << ", row " << r << ", output " << k;
        }
      }
    }
  }
  EXPECT_GT(found_forms[static_cast<size_t>(graph::ForestForm::kSelect)], 20)
      << "few have the form";
  for (const auto form : {graph::ForestForm::kRanks, graph::ForestForm::kLeaves})
    EXPECT_GT(found_forms[static_cast<size_t>(form)], 50) << "few have the form";
}

// The addresses of the tables of all forest_select nodes.
std::vector<const void*> CompleteTables(const graph::Graph& graph) {
  std::vector<const void*> found;
  for (const graph::Node& node : graph.nodes) {
    if (node.kind != graph::OpKind::kForestSelect) continue;
    for (size_t k = 1; k < node.inputs.size(); ++k)
      found.push_back(graph.constants.at(node.inputs[k]).bytes->data());
  }
  return found;
}

// Many candidates have the same forest, and its complete trees are large.
TEST(EmitForest, AMemoMakesCompleteTreesOnce) {
  int selects = 0;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    TestRng rng(seed);
    const Forest forest = RandomForest(rng, 1 + Below(rng, 6));
    constexpr int64_t kRows = 10;
    const graph::TensorData x = RandomRows(rng, kRows, forest.features);
    const graph::Graph imported = MarginGraph(forest, kRows);
    graph::FoldMemo memo;
    graph::PassOptions options;
    options.forests.all = graph::ForestForm::kSelect;
    const graph::Graph plain = graph::Optimize(imported, options).value();
    options.memo = &memo;
    const graph::Graph first = graph::Optimize(imported, options).value();
    const graph::Graph second = graph::Optimize(imported, options).value();
    const std::vector<const void*> tables = CompleteTables(first);
    selects += !tables.empty();
    EXPECT_EQ(CompleteTables(second), tables);
    if (!tables.empty()) {
      EXPECT_NE(CompleteTables(plain), tables);
    }
    EXPECT_EQ(*graph::EvaluateGraph(second, {&x, 1}).value()[0].bytes,
              *graph::EvaluateGraph(plain, {&x, 1}).value()[0].bytes);
  }
  EXPECT_GT(selects, 5) << "few forests have the form";
}

// The forest in one form, as a kernel would get it. EXPECTs that it has that form.
std::vector<float> ScoresInForm(const Forest& forest, const std::vector<float>& rows,
                                graph::ForestForm form) {
  const auto count = std::ssize(rows) / forest.features;
  graph::GraphBuilder out;
  const graph::ValueId x = out.Input("x", {ir::DType::kF32, {count, forest.features}});
  const graph::ValueId margins = EmitMargins(out, x, forest).value();
  machine::TargetInfo target;
  target.vector_bytes = 64;
  graph::ForestForms plan;
  const absl::StatusOr<graph::Graph> made = graph::AssignForestForms(
      out.Build({{"y", margins}}).value(), {.fixed = {{"forest", form}}, .plan = &plan}, target);
  EXPECT_TRUE(made.ok()) << made.status();
  if (!made.ok()) return {};
  EXPECT_EQ(plan.at("forest"), form);
  const graph::TensorData data = graph::FromElements({count, forest.features}, rows);
  const std::vector<graph::TensorData> found = graph::EvaluateGraph(*made, {&data, 1}).value();
  return {Floats(found[0]), Floats(found[0]) + count * forest.outputs};
}

// The tree of figure 3 of Nakandala et al.
Forest GoldenTree() {
  Forest forest;
  forest.features = 5;
  ColumnNumbers numbers(forest);
  for (int k = 0; k < 5; ++k) numbers.Add({.feature = k, .instead = -kInf});
  forest.outputs = 2;
  forest.base = {0, 0};
  Tree tree;
  tree.target = -1;
  // F3 < 0.5 ? (F2 < 2 ? C1 : C2) : (F5 < 5.5 ? (F3 < 2.4 ? C2 : C1) : C1)
  tree.nodes = {{2, 0.5F, 1, 2}, {1, 2, ~0, ~1}, {4, 5.5F, 3, ~4}, {2, 2.4F, ~2, ~3}};
  tree.leaves = {1, 0, 0, 1, 0, 1, 1, 0, 1, 0};
  forest.trees = {tree};
  return forest;
}

// A tree for each output, of leaves with one value, has all forms.
Forest WithATreeForEachOutput(Forest forest) {
  const Tree tree = forest.trees[0];
  forest.trees.clear();
  for (const int target : {0, 1}) {
    Tree one = tree;
    one.target = target;
    one.leaves.clear();
    for (size_t leaf = 0; leaf < tree.leaves.size() / 2; ++leaf)
      one.leaves.push_back(tree.leaves[2 * leaf + static_cast<size_t>(target)]);
    forest.trees.push_back(one);
  }
  return forest;
}

// The constant that is operand `k` of the graph's node of that kind.
template <typename T>
std::vector<T> OperandOf(const graph::Graph& graph, graph::OpKind kind, size_t k) {
  for (const graph::Node& node : graph.nodes) {
    if (node.kind != kind) continue;
    const graph::TensorData& data = graph.constants.at(node.inputs[k]);
    const T* const first = reinterpret_cast<const T*>(data.bytes->data());
    return {first, first + data.bytes->size() / sizeof(T)};
  }
  ADD_FAILURE() << "no such node";
  return {};
}

// The paper counts from 1, and a right child is the node after the left one. What a leaf asks is any question there, and one that
// nothing passes here.
TEST(EmitForest, TheGoldenTreeHasTheTablesOfThePaper) {
  using graph::OpKind;
  constexpr OpKind kWalk = OpKind::kForestWalk, kSelect = OpKind::kForestSelect;
  const graph::Graph walk = MarginGraph(GoldenTree(), 4);
  std::vector<int32_t> left = OperandOf<int32_t>(walk, kWalk, 3);
  std::vector<int32_t> features = OperandOf<int32_t>(walk, kWalk, 1);
  const std::vector<float> thresholds = OperandOf<float>(walk, kWalk, 2);
  left.resize(9);  // the last one pads
  for (int32_t& child : left) ++child;
  EXPECT_EQ(left, (std::vector<int32_t>{2, 4, 6, 4, 5, 8, 7, 8, 9}));  // N_L
  const std::map<size_t, std::pair<int32_t, float>> asked = {
      {0, {3, 0.5F}}, {1, {2, 2.0F}}, {2, {5, 5.5F}}, {5, {3, 2.4F}}};  // N_F, N_T
  for (size_t n = 0; n < left.size(); ++n) {
    const auto found = asked.find(n);
    if (found == asked.end()) {
      EXPECT_TRUE(std::isnan(thresholds[n])) << n;
      continue;
    }
    EXPECT_EQ(std::pair(features[n] + 1, thresholds[n]), found->second) << n;
  }
  std::vector<float> classes = OperandOf<float>(walk, kWalk, 4);
  classes.resize(18);
  const std::vector<float> expected = {0, 0, 0, 0, 0, 0, 1, 0, 0, 1, 0, 0, 1, 0, 0, 1, 1, 0};
  EXPECT_EQ(classes, expected);  // N_C

  // As complete trees: level by level, and leaves from left to right (N'_F, N'_T, N'_C).
  const graph::Graph complete =
      graph::AssignForestForms(MarginGraph(WithATreeForEachOutput(GoldenTree()), 4),
                               {.fixed = {{"forest", graph::ForestForm::kSelect}}}, {})
          .value();
  const std::vector<int32_t> columns = OperandOf<int32_t>(complete, kSelect, 1);
  const std::vector<float> limits = OperandOf<float>(complete, kSelect, 2);
  for (const size_t tree : {0, 1}) {
    for (const auto& [n, question] : asked)
      EXPECT_EQ(std::pair(columns[7 * tree + n] + 1, limits[7 * tree + n]), question) << n;
  }
  EXPECT_EQ(OperandOf<float>(complete, kSelect, 3),
            (std::vector<float>{1, 1, 0, 0, 0, 1, 1, 1, 0, 0, 1, 1, 1, 0, 0, 0}));
}

TEST(EmitForest, TheGoldenTree) {
  Forest forest = GoldenTree();
  ASSERT_TRUE(CheckForest(forest).ok()) << CheckForest(forest);
  const float below = -1;
  std::vector<float> rows, expected;
  for (const float f3 : {below, std::nextafter(0.5F, 0.0F), 0.5F, 2.4F, 3.0F}) {
    for (const float f2 : {1.0F, 2.0F, 2.5F}) {
      for (const float f5 : {5.0F, 5.5F, 6.0F}) {
        const std::vector<float> row{0, f2, f3, 0, f5};
        const bool first = f3 < 0.5F ? f2 < 2 : !(f5 < 5.5F) || !(f3 < 2.4F);
        EXPECT_EQ(Margins(forest, row),
                  (std::vector<double>{first ? 1.0 : 0.0, first ? 0.0 : 1.0}));
        rows.insert(rows.end(), row.begin(), row.end());
        expected.insert(expected.end(), {first ? 1.0F : 0.0F, first ? 0.0F : 1.0F});
      }
    }
  }
  EXPECT_EQ(ScoresInForm(forest, rows, graph::ForestForm::kWalk), expected);
  EXPECT_EQ(ScoresInForm(forest, rows, graph::ForestForm::kRanks), expected);
  forest = WithATreeForEachOutput(std::move(forest));
  for (const graph::ForestForm form : graph::kForestForms)
    EXPECT_EQ(ScoresInForm(forest, rows, form), expected) << std::string(ForestFormName(form));
}

float Transformed(Transform transform, std::vector<float> row, size_t at) {
  graph::GraphBuilder out;
  const auto n = static_cast<int64_t>(row.size());
  const graph::ValueId x = out.Input("x", {ir::DType::kF32, {1, n}});
  const graph::ValueId y = EmitTransform(out, x, transform).value();
  const graph::Graph made = out.Build({{"y", y}}).value();
  std::string bytes(row.size() * sizeof(float), 0);
  std::memcpy(bytes.data(), row.data(), bytes.size());
  const graph::TensorData data{{ir::DType::kF32, {1, n}}, SharedBytes::Of(std::move(bytes))};
  return Floats(graph::EvaluateGraph(made, {&data, 1}).value()[0])[at];
}

TEST(EmitForest, Transforms) {
  EXPECT_NEAR(Transformed(Transform::kLogistic, {0.3F}, 0), 1 / (1 + std::exp(-0.3)), 1e-6);
  EXPECT_NEAR(Transformed(Transform::kExp, {0.3F}, 0), std::exp(0.3), 1e-6);
  EXPECT_NEAR(Transformed(Transform::kLog1pExp, {0.3F}, 0), std::log1p(std::exp(0.3)), 1e-6);
  EXPECT_EQ(Transformed(Transform::kStep, {0, 0.5F}, 0), 0);
  EXPECT_EQ(Transformed(Transform::kStep, {0, 0.5F}, 1), 1);
  EXPECT_NEAR(Transformed(Transform::kSquareSigned, {-0.3F}, 0), -0.09, 1e-6);
  const double sum = std::exp(1.0) + std::exp(2.0) + std::exp(0.0);
  EXPECT_NEAR(Transformed(Transform::kSoftmax, {1, 2, 0}, 1), std::exp(2.0) / sum, 1e-6);
  EXPECT_NEAR(Transformed(Transform::kSoftmaxZero, {1, 2, 0}, 1), std::exp(2.0) / (sum - 1), 1e-6);
  EXPECT_EQ(Transformed(Transform::kSoftmaxZero, {1, 2, 0}, 2), 0);
  EXPECT_EQ(Transformed(Transform::kSoftmaxZero, {0, 0, 0}, 0), 0);
  // The quantile of the normal distribution at 0.975 is 1.95996; the approximation has four digits.
  EXPECT_NEAR(Transformed(Transform::kProbit, {0.975F}, 0), 1.95996, 5e-3);
}

TEST(ImportForest, Rows) {
  TestRng rng(7);
  const Forest forest = RandomForest(rng, 3);
  EXPECT_EQ(ImportForest(forest, {}).value().tables.blocks,
            (std::vector<int64_t>{2048, 128, 16, 1}));
  EXPECT_EQ(ImportForest(forest, {{"rows", {2, 8}}}).value().tables.blocks,
            (std::vector<int64_t>{8, 2}));
  EXPECT_TRUE(ImportForest(forest, {{"rows", {8}}}).value().tables.blocks.empty());
  EXPECT_THAT(std::string(ImportForest(forest, {{"rows", {8, 0}}}).status().message()),
              HasSubstr("give them as --shape rows=1,16,128,2048"));
  EXPECT_THAT(
      std::string(ImportForest(forest, {{"x", {3, forest.features + 1}}}).status().message()),
      HasSubstr("--shape x=1000x"));
  EXPECT_THAT(std::string(ImportForest(forest, {{"batch", {3}}}).status().message()),
              HasSubstr("neither an input nor a dimension 'batch'"));
  EXPECT_EQ(ImportForest(forest, {{"rows", {3}}}).value().values[0].type.shape[0], 3);
}

TEST(ImportForest, TellsWhichValuesLieAroundItsThresholds) {
  TestRng rng(7);
  const Forest forest = RandomForest(rng, 3);
  const graph::Graph graph = ImportForest(forest, {}).value();
  ASSERT_EQ(graph.tables.inputs.size(), graph.inputs.size());
  for (const graph::TensorNames& input : graph.tables.inputs)
    EXPECT_EQ(input.samples, SampleValues(forest, graph::kMostSamples));
  EXPECT_FALSE(graph.tables.inputs[0].samples.empty());
}

TEST(ImportForest, Labels) {
  Forest forest;
  forest.features = 1;
  ColumnNumbers(forest).Add({.feature = 0, .instead = -kInf});
  forest.base = {0};
  forest.transform = Transform::kLogistic;
  forest.classes = {-1, 7};
  // The margins of three rows: -2, 0 and 2. The second row is a tie of the two classes, which the first one wins.
  forest.trees = {{{{0, 0, ~0, 1}, {0, 1, ~1, ~2}}, 0, {-2, 0, 2}}};
  const std::vector<float> rows = {-1, 0.5F, 1};
  const graph::TensorData x = graph::FromElements({3, 1}, rows);
  for (const Transform transform : {Transform::kLogistic, Transform::kNone}) {
    forest.transform = transform;
    const graph::Graph made = ImportForest(forest, {{"rows", {3}}}).value();
    const auto found = graph::EvaluateGraph(made, {&x, 1}).value();
    ASSERT_EQ(found.size(), 2);
    const bool logistic = transform == Transform::kLogistic;
    EXPECT_EQ(Floats(found[0])[1], logistic ? 0.5F : 0);
    EXPECT_NEAR(Floats(found[0])[2], logistic ? 1 / (1 + std::exp(-2.0)) : 2, 1e-6);
    EXPECT_EQ(graph::ToInts(found[1]), (std::vector<int64_t>{-1, -1, 7}));
  }
}

TEST(ImportForest, ColumnsHaveTheNamesOfFeaturesAndClasses) {
  using Names = std::vector<std::string>;
  TestRng rng(3);
  Forest forest = RandomForest(rng, 3);
  const auto tables = [&] {
    EXPECT_TRUE(graph::HasIndependentRows(ImportForest(forest, {{"rows", {1}}}).value()));
    const graph::Graph made = ImportForest(forest, {{"rows", {4}}}).value();
    EXPECT_TRUE(graph::HasIndependentRows(made));
    return made.tables;
  };
  forest.classes.clear();
  EXPECT_TRUE(tables().independent_rows);
  EXPECT_EQ(tables().inputs[0].columns, Names());
  EXPECT_EQ(tables().outputs, std::vector<graph::TensorNames>(1));
  for (int k = 0; k < forest.features; ++k)
    forest.feature_names.push_back("feature " + std::to_string(k));
  for (int k = 0; k < forest.outputs; ++k) forest.classes.push_back(10 - k);
  if (forest.outputs == 1) forest.classes.push_back(9);
  Names scored;
  for (int64_t of : forest.classes) scored.push_back(std::to_string(of));
  if (forest.outputs == 1) scored.erase(scored.begin());
  EXPECT_EQ(tables().inputs[0].columns, forest.feature_names);
  ASSERT_EQ(tables().outputs.size(), 2u);
  EXPECT_EQ(tables().outputs[0].columns, scored);
  EXPECT_EQ(tables().outputs[1], graph::TensorNames());
  forest.feature_names[0] = std::string(graph::kMostNameBytes + 1, 'x');
  std::vector<std::string> warnings;
  const auto without = ImportForest(forest, {{"rows", {4, 1}}}, &warnings);
  ASSERT_TRUE(without.ok()) << without.status();
  EXPECT_EQ(without->tables.inputs[0].columns, Names());
  EXPECT_EQ(without->tables.outputs[0].columns, scored) << "other names stay";
  EXPECT_THAT(warnings, ElementsAre(AllOf(HasSubstr("columns of 'x'"), HasSubstr("1025 bytes"),
                                          HasSubstr("1024 are the most"))));
}

}  // namespace
}  // namespace heddle::classical
