#include "compiler/classical/forest.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <random>

#include "tests/classical/random_forest.h"

namespace heddle::classical {
namespace {

using Rng = std::mt19937_64;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kLargest = std::numeric_limits<float>::max();
constexpr float kSmallest = std::numeric_limits<float>::denorm_min();

// Any f32 but NaN; a half of them has the exponent of everyday numbers.
float AnyFloat(Rng& rng) {
  for (;;) {
    uint32_t bits = static_cast<uint32_t>(rng());
    if (rng() % 2) bits = (bits & 0x807fffff) | (126 + rng() % 4) << 23;
    const float x = std::bit_cast<float>(bits);
    if (!std::isnan(x)) return x;
  }
}

// For every f32: x >= t as t is rounded, and x <= t as it is, asked around the rounded threshold.
void ExpectSameQuestions(double t, Rng& rng) {
  const float at_least = SmallestAtLeast(t);
  const float above = SmallestAbove(t);
  for (float near : {at_least, above, AnyFloat(rng)}) {
    for (float x : {near, std::nextafter(near, -kInfinity), std::nextafter(near, kInfinity)}) {
      EXPECT_EQ(x >= t, x >= at_least) << x << " >= " << t;
      EXPECT_EQ(x <= t, !(x >= above)) << x << " <= " << t;
    }
  }
}

TEST(Thresholds, AskTheSameOfEveryFloat) {
  Rng rng(1);
  for (double t : {0.0, -0.0, 0.1, 1e-35, -1e-35, 1e-300, -1e-300, 1e300, -1e300})
    ExpectSameQuestions(t, rng);
  for (float x : {kLargest, -kLargest, kSmallest, -kSmallest, 1.0f}) {
    for (double t : {static_cast<double>(x), std::nextafter(static_cast<double>(x), 1e300),
                     std::nextafter(static_cast<double>(x), -1e300), x * 1.00000001})
      ExpectSameQuestions(t, rng);
  }
  for (int i = 0; i < 100'000; ++i) {
    const double x = AnyFloat(rng);
    if (std::isinf(x)) continue;
    const double y = std::nextafter(static_cast<float>(x), kInfinity);
    ExpectSameQuestions(x, rng);
    ExpectSameQuestions(std::nextafter(x, 1e300), rng);
    ExpectSameQuestions(std::nextafter(x, -1e300), rng);
    if (std::isfinite(y)) ExpectSameQuestions(x / 2 + y / 2, rng);
  }
}

TEST(Thresholds, KeepInfinities) {
  EXPECT_EQ(SmallestAtLeast(kInfinity), kInfinity);
  EXPECT_EQ(SmallestAtLeast(-kInfinity), -kInfinity);
  EXPECT_EQ(SmallestAbove(-kInfinity), -kLargest);
}

TEST(ColumnValue, ReplacesMissingValues) {
  const Column value{.instead = -kInfinity};
  EXPECT_EQ(ColumnValue(value, kNan), -kInfinity);
  EXPECT_EQ(ColumnValue(value, 0), 0);
  EXPECT_EQ(ColumnValue(value, kInfinity), kInfinity);
  const Column zero{.missing = Column::Missing::kNanOrZero, .instead = 7};
  for (float x : {kNan, 0.0f, -0.0f, 1e-35f, -1e-35f, kSmallest})
    EXPECT_EQ(ColumnValue(zero, x), 7) << x;
  for (float x : {std::nextafter(1e-35f, 1.0f), -1e-34f, 1.0f}) EXPECT_EQ(ColumnValue(zero, x), x);
}

TEST(ColumnValue, TruncatesToMembers) {
  Column c{.kind = Column::Kind::kMember, .instead = 1, .members = {0, 3, 1'000'000}};
  for (float x : {0.0f, -0.0f, 0.5f, 3.0f, 3.99f, 1e6f, kNan, -0.5f})
    EXPECT_EQ(ColumnValue(c, x), 1) << x;
  for (float x : {-1.0f, 1.0f, 2.99f, 4.0f, 1e7f, 1e30f, kInfinity, -kInfinity, -3.0f})
    EXPECT_EQ(ColumnValue(c, x), 0) << x;
  c.from_zero = true;
  EXPECT_EQ(ColumnValue(c, -0.5f), 0);
  EXPECT_EQ(ColumnValue(c, -0.0f), 1);
  EXPECT_EQ(ColumnValue(c, 0.5f), 1);
}

TEST(ColumnNumbers, AreOneForEqualColumns) {
  Rng rng(2);
  for (int i = 0; i < 100; ++i) {
    const Forest forest = RandomForest(rng);
    for (size_t a = 0; a < forest.columns.size(); ++a) {
      for (size_t b = 0; b < a; ++b) EXPECT_FALSE(forest.columns[a] == forest.columns[b]);
    }
    Forest again;
    ColumnNumbers numbers(again);
    for (int round = 0; round < 2; ++round) {
      for (size_t k = 0; k < forest.columns.size(); ++k)
        EXPECT_EQ(numbers.Add(forest.columns[k]), static_cast<int>(k));
    }
    EXPECT_EQ(again.columns, forest.columns);
  }
}

// Adds the values of a subtree's leaf to `results`, one call for each node on the way.
void Follow(const Tree& tree, int at, const std::function<bool(const Node&)>& right,
            std::vector<int>& way) {
  way.push_back(at);
  if (at >= 0)
    Follow(tree, right(tree.nodes[at]) ? tree.nodes[at].right : tree.nodes[at].left, right, way);
}

TEST(Margins, AreWhatTheTreesSay) {
  Rng rng(3);
  for (int i = 0; i < 300; ++i) {
    const Forest forest = RandomForest(rng);
    ASSERT_TRUE(CheckForest(forest).ok()) << CheckForest(forest);
    const std::vector<float> row = RandomRow(forest, rng);
    std::vector<float> columns;
    for (const Column& c : forest.columns) columns.push_back(ColumnValue(c, row[c.feature]));
    std::vector<std::vector<double>> values(forest.outputs);
    for (const Tree& tree : forest.trees) {
      std::vector<int> way;
      Follow(
          tree, tree.nodes.empty() ? ~0 : 0,
          [&](const Node& n) { return columns[n.column] >= n.threshold; }, way);
      EXPECT_EQ(LeafOf(tree, columns), ~way.back());
      EXPECT_LE(static_cast<int>(way.size()) - 1, Depth(tree));
      for (int o = 0; o < forest.outputs; ++o) {
        if (tree.target >= 0 && tree.target != o) continue;
        const int place = tree.target >= 0 ? ~way.back() : ~way.back() * forest.outputs + o;
        values[o].push_back(tree.leaves[place]);
      }
    }
    const std::vector<double> margins = Margins(forest, row);
    ASSERT_EQ(std::ssize(margins), forest.outputs);
    for (int o = 0; o < forest.outputs; ++o) {
      double all = 0;
      for (double value : values[o]) all += value;
      if (forest.aggregate == Aggregate::kMean) all /= static_cast<double>(forest.trees.size());
      if (forest.aggregate == Aggregate::kMin) all = *std::ranges::min_element(values[o]);
      if (forest.aggregate == Aggregate::kMax) all = *std::ranges::max_element(values[o]);
      EXPECT_NEAR(margins[o], (all + forest.base[o]) * forest.scale, 1e-12);
    }
  }
}

TEST(Depth, CountsInnerNodes) {
  EXPECT_EQ(Depth({.leaves = {1}}), 0);
  EXPECT_EQ(Depth({.nodes = {{.left = ~0, .right = ~1}}}), 1);
  EXPECT_EQ(Depth({.nodes = {{.left = 1, .right = 2},
                             {.left = ~0, .right = ~1},
                             {.left = 3, .right = ~2},
                             {.left = ~3, .right = ~4}}}),
            3);
}

// Two features, a value column and a member column, an inner node of each, two outputs.
Forest SmallForest() {
  Forest f;
  f.features = 2;
  f.feature_names = {"age", "colour"};
  f.columns = {{.feature = 0, .instead = kInfinity},
               {.feature = 1, .kind = Column::Kind::kMember, .members = {1, 4}}};
  f.outputs = 2;
  f.base = {0, 1};
  f.classes = {5, 6};
  f.trees = {{.nodes = {{.column = 0, .threshold = 2, .left = 1, .right = ~0},
                        {.column = 1, .threshold = 1, .left = ~1, .right = ~2}},
              .target = 1,
              .leaves = {1, 2, 3}},
             {.target = -1, .leaves = {1, 2}}};
  return f;
}

TEST(CheckForest, RefusesEveryKindOfDamage) {
  ASSERT_TRUE(CheckForest(SmallForest()).ok()) << CheckForest(SmallForest());
  struct Damage {
    const char* says;
    std::function<void(Forest&)> apply;
  };
  const Damage kDamages[] = {
      {"0 features", [](Forest& f) { f.features = 0; }},
      {"features", [](Forest& f) { f.features = kMostFeatures + 1; }},
      {"1 names for 2 features", [](Forest& f) { f.feature_names.pop_back(); }},
      {"0 outputs", [](Forest& f) { f.outputs = 0; }},
      {"outputs", [](Forest& f) { f.outputs = kMostOutputs + 1; }},
      {"0 trees", [](Forest& f) { f.trees.clear(); }},
      {"1 base values for 2 outputs", [](Forest& f) { f.base.pop_back(); }},
      {"a base value is nan", [](Forest& f) { f.base[1] = kNan; }},
      {"the scale is inf", [](Forest& f) { f.scale = kInfinity; }},
      {"1 classes for 2 outputs", [](Forest& f) { f.classes = {3}; }},
      {"column 0: feature 2 of 2", [](Forest& f) { f.columns[0].feature = 2; }},
      {"column 1: feature -1 of 2", [](Forest& f) { f.columns[1].feature = -1; }},
      {"column 0: NaN instead", [](Forest& f) { f.columns[0].instead = kNan; }},
      {"column 0: a value column has", [](Forest& f) { f.columns[0].members = {1}; }},
      {"column 0: a value column has", [](Forest& f) { f.columns[0].from_zero = true; }},
      {"column 1: 0.5 instead", [](Forest& f) { f.columns[1].instead = 0.5f; }},
      {"column 1: members",
       [](Forest& f) {
         f.columns[1].members = {4, 1};
       }},
      {"column 1: members",
       [](Forest& f) {
         f.columns[1].members = {1, 1};
       }},
      {"column 1: members",
       [](Forest& f) {
         f.columns[1].members = {-1, 1};
       }},
      {"column 2: equals", [](Forest& f) { f.columns.push_back(f.columns[1]); }},
      {"tree 0: target 2 of 2", [](Forest& f) { f.trees[0].target = 2; }},
      {"tree 1: target -2 of 2", [](Forest& f) { f.trees[1].target = -2; }},
      {"tree 0: 2 leaf values", [](Forest& f) { f.trees[0].leaves.pop_back(); }},
      {"tree 0: 4 leaf values", [](Forest& f) { f.trees[0].leaves.push_back(0); }},
      {"tree 1: 2 leaf values", [](Forest& f) { f.trees[1].target = 0; }},
      {"tree 0: a leaf value is nan", [](Forest& f) { f.trees[0].leaves[1] = kNan; }},
      {"tree 1: a leaf value is -inf", [](Forest& f) { f.trees[1].leaves[1] = -kInfinity; }},
      {"tree 0: node 1: column 2 of 2", [](Forest& f) { f.trees[0].nodes[1].column = 2; }},
      {"tree 0: node 0: column -1 of 2", [](Forest& f) { f.trees[0].nodes[0].column = -1; }},
      {"node 0: the threshold is nan", [](Forest& f) { f.trees[0].nodes[0].threshold = kNan; }},
      {"node 0: the threshold is -inf",
       [](Forest& f) { f.trees[0].nodes[0].threshold = -kInfinity; }},
      {"node 1: the threshold of a member", [](Forest& f) { f.trees[0].nodes[1].threshold = 2; }},
      {"node 0: child 2 is not", [](Forest& f) { f.trees[0].nodes[0].left = 2; }},
      {"node 0: child 0 is not", [](Forest& f) { f.trees[0].nodes[0].left = 0; }},
      {"node 1: child 0 is not", [](Forest& f) { f.trees[0].nodes[1].left = 0; }},
      {"node 1: leaf 3 of 3", [](Forest& f) { f.trees[0].nodes[1].left = ~3; }},
      {"node 1: leaf 0 is reached", [](Forest& f) { f.trees[0].nodes[1].right = ~0; }},
      {"node 0: node 1 is reached", [](Forest& f) { f.trees[0].nodes[0].right = 1; }},
      {"no tree has a value for output 0",
       [](Forest& f) {
         f.aggregate = Aggregate::kMax;
         f.trees.pop_back();
       }},
  };
  for (const Damage& damage : kDamages) {
    Forest forest = SmallForest();
    damage.apply(forest);
    const absl::Status status = CheckForest(forest);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << damage.says;
    EXPECT_NE(status.message().find(damage.says), std::string::npos)
        << status << " " << damage.says;
  }
}

// A tree that is a chain of `depth` nodes.
TEST(CheckForest, LimitsDepthAndMembers) {
  Forest f = SmallForest();
  Tree& tree = f.trees[0];
  const auto chain = [&](int depth) {
    tree.nodes.clear();
    for (int i = 0; i < depth; ++i)
      tree.nodes.push_back({.left = i + 1 < depth ? i + 1 : ~depth, .right = ~i});
    tree.leaves.assign(depth + 1, 0);
  };
  chain(kMostDepth);
  EXPECT_TRUE(CheckForest(f).ok()) << CheckForest(f);
  EXPECT_EQ(Depth(tree), kMostDepth);
  chain(kMostDepth + 1);
  EXPECT_FALSE(CheckForest(f).ok());

  f = SmallForest();
  std::vector<int64_t>& members = f.columns[1].members;
  members.clear();
  for (int64_t i = 0; i < kMostMembers; ++i) members.push_back(i);
  EXPECT_TRUE(CheckForest(f).ok()) << CheckForest(f);
  members.push_back(kMostMembers);
  EXPECT_FALSE(CheckForest(f).ok());
}

std::vector<double> Transformed(Transform transform, std::vector<double> outputs) {
  ApplyTransform(transform, outputs);
  return outputs;
}

TEST(ApplyTransform, FollowsTheFormulas) {
  for (double x : {-50.0, -3.0, -0.25, 0.0, 0.5, 4.0, 50.0}) {
    const double e = std::exp(x);
    const auto one = [&](Transform t) { return Transformed(t, {x})[0]; };
    EXPECT_EQ(one(Transform::kNone), x);
    EXPECT_NEAR(one(Transform::kLogistic), e / (1 + e), 1e-15);
    EXPECT_NEAR(one(Transform::kExp) / e, 1, 1e-15);
    EXPECT_EQ(one(Transform::kSquareSigned), x < 0 ? -x * x : x * x);
    EXPECT_NEAR(one(Transform::kLog1pExp), std::log1p(e), 1e-14);
    EXPECT_EQ(one(Transform::kStep), x > 0 ? 1 : 0);
    EXPECT_EQ(one(Transform::kSoftmax), 1);
  }
  EXPECT_EQ(Transformed(Transform::kLog1pExp, {1000})[0], 1000);
}

TEST(ApplyTransform, MakesProbabilitiesOfManyOutputs) {
  const double a = std::exp(1.0), b = std::exp(-2.0);
  const std::vector<double> all = Transformed(Transform::kSoftmax, {1, 0, -2});
  EXPECT_NEAR(all[0], a / (a + 1 + b), 1e-15);
  EXPECT_NEAR(all[1], 1 / (a + 1 + b), 1e-15);
  EXPECT_NEAR(all[2], b / (a + 1 + b), 1e-15);
  const std::vector<double> some = Transformed(Transform::kSoftmaxZero, {1, 0, -2});
  EXPECT_NEAR(some[0], a / (a + b), 1e-15);
  EXPECT_EQ(some[1], 0);
  EXPECT_NEAR(some[2], b / (a + b), 1e-15);
  EXPECT_EQ(Transformed(Transform::kSoftmax, {1000, 1000}), (std::vector<double>{0.5, 0.5}));
}

TEST(ApplyTransform, InvertsTheNormalDistribution) {
  for (double p : {1e-9, 0.001, 0.3, 0.5, 0.9, 0.999}) {
    const double x = Transformed(Transform::kProbit, {p})[0];
    EXPECT_NEAR(std::erfc(-x / std::sqrt(2.0)) / 2 / p, 1, 1e-9);
  }
}

}  // namespace
}  // namespace heddle::classical
