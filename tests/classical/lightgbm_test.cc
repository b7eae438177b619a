// Models as text that this test writes itself, against LightGBM's rules in plain code.
#include "compiler/classical/lightgbm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "tests/classical/damage.h"

namespace heddle::classical {
namespace {

using Rng = std::mt19937_64;

constexpr double kDoubleInfinity = std::numeric_limits<double>::infinity();
constexpr double kDoubleNan = std::numeric_limits<double>::quiet_NaN();

// One tree as LightGBM keeps it. Children are inner nodes, or leaves as ~number.
struct TextTree {
  std::vector<int> feature{}, decision_type{}, left{}, right{};
  std::vector<double> threshold{}, leaf{};
  std::vector<int> boundaries = {0};
  std::vector<uint32_t> words{};
};

std::string Exact(double x) { return absl::StrFormat("%.17g", x); }

std::string ToText(const TextTree& tree, int number) {
  const auto doubles = [](const std::vector<double>& numbers) {
    return absl::StrJoin(numbers, " ", [](std::string* out, double x) { *out += Exact(x); });
  };
  std::string text = absl::StrCat(
      "Tree=", number, "\nnum_leaves=", tree.leaf.size(), "\nnum_cat=", tree.boundaries.size() - 1,
      "\nsplit_feature=", absl::StrJoin(tree.feature, " "),
      "\nsplit_gain=", absl::StrJoin(tree.feature, " "), "\nthreshold=", doubles(tree.threshold),
      "\ndecision_type=", absl::StrJoin(tree.decision_type, " "),
      "\nleft_child=", absl::StrJoin(tree.left, " "),
      "\nright_child=", absl::StrJoin(tree.right, " "), "\nleaf_value=", doubles(tree.leaf), "\n");
  if (tree.boundaries.size() > 1) {
    absl::StrAppend(&text, "cat_boundaries=", absl::StrJoin(tree.boundaries, " "),
                    "\ncat_threshold=", absl::StrJoin(tree.words, " "), "\n");
  }
  return text + "is_linear=0\nshrinkage=0.1\n\n\n";
}

// A model of three features. `more` are lines of the head.
std::string ToText(const std::vector<TextTree>& trees, int trees_per_iteration,
                   absl::string_view more) {
  std::string text = absl::StrCat("tree\nversion=v4\nnum_class=", trees_per_iteration,
                                  "\nnum_tree_per_iteration=", trees_per_iteration,
                                  "\nlabel_index=0\nmax_feature_idx=2\n", more,
                                  "feature_names=age income colour\n"
                                  "feature_infos=none none none\ntree_sizes=1\n\n");
  for (size_t i = 0; i < trees.size(); ++i) text += ToText(trees[i], static_cast<int>(i));
  return text + "end of trees\n\nfeature_importances:\nage=3\n\nparameters:\n[boosting: gbdt]\n";
}

// LightGBM's rules, on f64.
bool GoesLeft(const TextTree& tree, int node, double x) {
  const int type = tree.decision_type[node];
  if (type & 1) {
    if (std::isnan(x) || x <= -1 || x >= 2147483648.0) return false;
    const auto category = static_cast<uint32_t>(x);
    const auto set = static_cast<size_t>(tree.threshold[node]);
    const uint32_t word = category / 32;
    if (word >= static_cast<uint32_t>(tree.boundaries[set + 1] - tree.boundaries[set]))
      return false;
    return tree.words[tree.boundaries[set] + word] >> category % 32 & 1;
  }
  const int missing = type >> 2;  // none, zero, NaN
  if (std::isnan(x) && missing != 2) x = 0;
  const bool is_missing = missing == 1 ? std::abs(x) <= 1e-35f : missing == 2 && std::isnan(x);
  return is_missing ? (type & 2) != 0 : x <= tree.threshold[node];
}

double Predict(const TextTree& tree, const std::vector<float>& row) {
  int at = tree.leaf.size() == 1 ? ~0 : 0;
  while (at >= 0) at = GoesLeft(tree, at, row[tree.feature[at]]) ? tree.left[at] : tree.right[at];
  return tree.leaf[~at];
}

double AThreshold(Rng& rng) {
  const double kThresholds[] = {
      0,     1e-35,  1.0000000180025095e-35, -1e-35,          0.1, 0.5, 1, -1.5, 2.0000000001,
      1e300, -1e300, kDoubleInfinity,        -kDoubleInfinity};
  return kThresholds[rng() % std::size(kThresholds)];
}

float AValue(Rng& rng) {
  const float kValues[] = {0,
                           -0.0f,
                           1e-35f,
                           -1e-35f,
                           1.1e-35f,
                           1e-36f,
                           0.1f,
                           0.5f,
                           1,
                           -1.5f,
                           2,
                           -0.5f,
                           -1,
                           -2,
                           31,
                           32,
                           63,
                           64,
                           65,
                           95.5f,
                           96,
                           1e9f,
                           3e9f,
                           1e30f,
                           static_cast<float>(kDoubleInfinity),
                           static_cast<float>(-kDoubleInfinity)};
  const uint64_t k = rng() % (std::size(kValues) + 4);
  if (k >= std::size(kValues)) return std::numeric_limits<float>::quiet_NaN();
  return k % 3 ? kValues[k] : std::nextafter(kValues[k], rng() % 2 ? 1e30f : -1e30f);
}

TextTree RandomTextTree(Rng& rng) {
  TextTree tree;
  const int inner = static_cast<int>(rng() % 20);
  std::vector<std::pair<int, bool>> open;
  for (int i = 0; i < inner; ++i) {
    if (i > 0) {
      const size_t k = rng() % open.size();
      (open[k].second ? tree.right : tree.left)[open[k].first] = i;
      open.erase(open.begin() + static_cast<std::ptrdiff_t>(k));
    }
    open.emplace_back(i, false);
    open.emplace_back(i, true);
    tree.feature.push_back(static_cast<int>(rng() % 3));
    tree.left.push_back(0);
    tree.right.push_back(0);
    if (rng() % 3 == 0) {
      tree.decision_type.push_back(1 + 4 * static_cast<int>(rng() % 3));
      tree.threshold.push_back(static_cast<double>(tree.boundaries.size() - 1));
      for (uint64_t w = rng() % 4; w > 0; --w) tree.words.push_back(static_cast<uint32_t>(rng()));
      tree.boundaries.push_back(static_cast<int>(tree.words.size()));
    } else {
      tree.decision_type.push_back(2 * static_cast<int>(rng() % 6));
      tree.threshold.push_back(AThreshold(rng));
    }
  }
  int leaf = 0;
  for (const auto& [node, right] : open) (right ? tree.right : tree.left)[node] = ~leaf++;
  for (int i = 0; i <= inner; ++i)
    tree.leaf.push_back(static_cast<double>(rng() % 2000) / 1000 - 1);
  return tree;
}

TEST(ReadLightgbm, PredictsAsTheRulesSay) {
  Rng rng(1);
  for (int i = 0; i < 300; ++i) {
    const int outputs = static_cast<int>(1 + rng() % 3);
    std::vector<TextTree> trees;
    for (uint64_t k = outputs * (1 + rng() % 3); k > 0; --k) trees.push_back(RandomTextTree(rng));
    const bool average = rng() % 2;
    const std::string text =
        ToText(trees, outputs, average ? "objective=regression\naverage_output\n" : "");
    const absl::StatusOr<Forest> forest = ReadLightgbm(text);
    ASSERT_TRUE(forest.ok()) << forest.status() << "\n" << text;
    EXPECT_EQ(forest->feature_names, (std::vector<std::string>{"age", "income", "colour"}));
    EXPECT_EQ(forest->transform, Transform::kNone);
    EXPECT_TRUE(forest->classes.empty());
    for (int r = 0; r < 50; ++r) {
      const std::vector<float> row = {AValue(rng), AValue(rng), AValue(rng)};
      std::vector<double> sums(outputs, 0);
      for (size_t t = 0; t < trees.size(); ++t) sums[t % outputs] += Predict(trees[t], row);
      const std::vector<double> margins = Margins(*forest, row);
      ASSERT_EQ(std::ssize(margins), outputs);
      for (int o = 0; o < outputs; ++o) {
        const double iterations = average ? static_cast<double>(trees.size()) / outputs : 1;
        EXPECT_NEAR(margins[o], sums[o] / iterations, 1e-5) << absl::StrJoin(row, " ") << "\n"
                                                            << text;
      }
    }
  }
}

// A root of the decision type, with the leaves 1 (left) and 2 (right).
double Stump(int decision_type, double threshold, double x) {
  TextTree tree{.feature = {0},
                .decision_type = {decision_type},
                .left = {~0},
                .right = {~1},
                .threshold = {threshold},
                .leaf = {1, 2}};
  if (decision_type & 1) {
    tree.boundaries = {0, 2};
    tree.words = {1u << 3 | 1u, 1u << 1};  // categories 0, 3 and 33
  }
  const absl::StatusOr<Forest> forest = ReadLightgbm(ToText({tree}, 1, ""));
  EXPECT_TRUE(forest.ok()) << forest.status();
  return forest.ok() ? Margins(*forest, std::vector<float>{static_cast<float>(x), 0, 0})[0] : 0;
}

TEST(ReadLightgbm, KnowsEveryDecisionType) {
  constexpr int kNone = 0, kZero = 4, kMissingNan = 8, kLeft = 2;
  for (int type : {kNone, kNone | kLeft, kZero, kZero | kLeft, kMissingNan, kMissingNan | kLeft}) {
    EXPECT_EQ(Stump(type, 1.5, 1.5), 1) << type;  // as large as the threshold
    EXPECT_EQ(Stump(type, 1.5, 1.4), 1) << type;
    EXPECT_EQ(Stump(type, 1.5, 1.6), 2) << type;
    EXPECT_EQ(Stump(type, 0.1, 0.1), 2) << type;  // f32 0.1 is more than f64 0.1
  }
  // Missing type none: NaN is 0, wherever the default goes.
  for (int type : {kNone, kNone | kLeft}) {
    EXPECT_EQ(Stump(type, 1, kDoubleNan), 1);
    EXPECT_EQ(Stump(type, -1, kDoubleNan), 2);
    EXPECT_EQ(Stump(type, 0, kDoubleNan), 1);
  }
  // Missing type zero: 0 and NaN go where the default goes.
  for (double zero : {0.0, -0.0, 1e-36, -1e-36, kDoubleNan}) {
    EXPECT_EQ(Stump(kZero, 1, zero), 2);
    EXPECT_EQ(Stump(kZero | kLeft, -1, zero), 1);
  }
  EXPECT_EQ(Stump(kZero, 1, 1e-34), 1);
  // Missing type NaN: 0 is a number.
  EXPECT_EQ(Stump(kMissingNan, 1, kDoubleNan), 2);
  EXPECT_EQ(Stump(kMissingNan | kLeft, -1, kDoubleNan), 1);
  EXPECT_EQ(Stump(kMissingNan, 1, 0), 1);
  // No value is beyond the threshold, but a missing one may go right.
  for (int type : {kNone, kZero, kMissingNan | kLeft}) {
    for (double x : {0.5, 1e30, kDoubleInfinity, -kDoubleInfinity})
      EXPECT_EQ(Stump(type, kDoubleInfinity, x), 1) << x;
  }
  EXPECT_EQ(Stump(kMissingNan, kDoubleInfinity, kDoubleInfinity), 1);
  EXPECT_EQ(Stump(kMissingNan, kDoubleInfinity, kDoubleNan), 2);
  EXPECT_EQ(Stump(kMissingNan | kLeft, kDoubleInfinity, kDoubleNan), 1);
  EXPECT_EQ(Stump(kNone, kDoubleInfinity, kDoubleNan), 1);
  EXPECT_EQ(Stump(kZero, kDoubleInfinity, 0), 2);
  EXPECT_EQ(Stump(kMissingNan, -kDoubleInfinity, -kDoubleInfinity), 1);
  EXPECT_EQ(Stump(kMissingNan, -kDoubleInfinity, -1e38), 2);
  // Categories.
  for (int missing : {kNone, kZero, kMissingNan}) {
    for (double x : {0.0, 3.0, 3.9, 33.0, -0.5}) EXPECT_EQ(Stump(1 | missing, 0, x), 1) << x;
    for (double x : {kDoubleNan, 1.0, 32.0, 35.0, -1.0, 64.0, 1e9, 1e30, -1e30})
      EXPECT_EQ(Stump(1 | missing, 0, x), 2) << x;
  }
}

double Logistic(double x) { return 1 / (1 + std::exp(-x)); }

TEST(ReadLightgbm, KnowsTheObjectives) {
  struct Case {
    const char* objective;
    std::function<double(double)> output;  // of a raw score
    std::vector<int64_t> classes;
  };
  const auto same = [](double x) { return x; };
  const auto squared = [](double x) { return x < 0 ? -x * x : x * x; };
  const auto exp = [](double x) { return std::exp(x); };
  const Case kCases[] = {
      {"regression", same, {}},
      {"regression sqrt", squared, {}},
      {"regression_l1", same, {}},
      {"regression_l1 sqrt", squared, {}},
      {"huber", same, {}},
      {"fair", same, {}},
      {"quantile", same, {}},
      {"mape", same, {}},
      {"poisson", exp, {}},
      {"poisson sqrt", exp, {}},
      {"gamma", exp, {}},
      {"tweedie", exp, {}},
      {"binary sigmoid:1", Logistic, {0, 1}},
      {"binary sigmoid:0.7", [](double x) { return Logistic(0.7 * x); }, {0, 1}},
      {"cross_entropy", Logistic, {}},
      {"xentropy", Logistic, {}},
      {"cross_entropy_lambda", [](double x) { return std::log(1 + std::exp(x)); }, {}},
      {"lambdarank", same, {}},
      {"rank_xendcg", same, {}},
      {"custom", same, {}},
  };
  const TextTree tree{.feature = {1},
                      .decision_type = {8},
                      .left = {~0},
                      .right = {~1},
                      .threshold = {2},
                      .leaf = {-0.75, 0.5}};
  for (const Case& c : kCases) {
    const absl::StatusOr<Forest> forest =
        ReadLightgbm(ToText({tree, tree}, 1, absl::StrCat("objective=", c.objective, "\n")));
    ASSERT_TRUE(forest.ok()) << forest.status();
    EXPECT_EQ(forest->classes, c.classes) << c.objective;
    for (float x : {1.0f, 3.0f}) {
      std::vector<double> outputs = Margins(*forest, std::vector<float>{0, x, 0});
      ApplyTransform(forest->transform, outputs);
      EXPECT_NEAR(outputs[0], c.output(x < 2 ? -1.5 : 1.0), 1e-6) << c.objective;
    }
  }
}

TEST(ReadLightgbm, KnowsTheObjectivesOfManyClasses) {
  const TextTree a{.leaf = {1}}, b{.leaf = {-2}}, c{.leaf = {0.5}};
  absl::StatusOr<Forest> forest =
      ReadLightgbm(ToText({a, b, c}, 3, "objective=multiclass num_class:3\n"));
  ASSERT_TRUE(forest.ok()) << forest.status();
  EXPECT_EQ(forest->classes, (std::vector<int64_t>{0, 1, 2}));
  std::vector<double> outputs = Margins(*forest, std::vector<float>(3));
  ApplyTransform(forest->transform, outputs);
  EXPECT_NEAR(outputs[0], std::exp(1.0) / (std::exp(1.0) + std::exp(-2.0) + std::exp(0.5)), 1e-6);

  forest = ReadLightgbm(ToText({a, b, c}, 3, "objective=multiclassova num_class:3 sigmoid:2\n"));
  ASSERT_TRUE(forest.ok()) << forest.status();
  EXPECT_EQ(forest->classes, (std::vector<int64_t>{0, 1, 2}));
  outputs = Margins(*forest, std::vector<float>(3));
  ApplyTransform(forest->transform, outputs);
  EXPECT_NEAR(outputs[1], Logistic(-4), 1e-6);
}

// The text of a good model with each type of field.
std::string GoodText() {
  Rng rng(7);
  std::vector<TextTree> trees;
  for (int i = 0; i < 4; ++i) trees.push_back(RandomTextTree(rng));
  trees.push_back({.feature = {0, 2},
                   .decision_type = {8, 1},
                   .left = {1, ~0},
                   .right = {~2, ~1},
                   .threshold = {2, 0},
                   .leaf = {1, 2, 3},
                   .boundaries = {0, 1},
                   .words = {5}});
  return ToText(trees, 1, "objective=binary sigmoid:1\n");
}

TEST(ReadLightgbm, ReadsLinesWithCarriageReturns) {
  const absl::StatusOr<Forest> forest = ReadLightgbm(GoodText());
  const absl::StatusOr<Forest> again =
      ReadLightgbm(absl::StrReplaceAll(GoodText(), {{"\n", "\r\n"}}));
  ASSERT_TRUE(forest.ok()) << forest.status();
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_TRUE(*forest == *again);
}

TEST(ReadLightgbm, WarnsOfCategoriesOfFrames) {
  TextTree tree;
  tree.feature = {2};
  tree.threshold = {0.5};
  tree.decision_type = {0};
  tree.left = {~0};
  tree.right = {~1};
  tree.leaf = {1, 2};
  const auto warnings = [&](const std::string& end) {
    const absl::StatusOr<Forest> forest = ReadLightgbm(ToText({tree}, 1, "") + end);
    EXPECT_TRUE(forest.ok()) << forest.status();
    return forest.ok() ? forest->warnings : std::vector<std::string>();
  };
  EXPECT_TRUE(warnings("").empty());
  EXPECT_TRUE(warnings("\npandas_categorical:null\n").empty());
  EXPECT_TRUE(warnings("\npandas_categorical:[]\n").empty());
  EXPECT_EQ(warnings("\npandas_categorical:[[10, 20], [\"red\"]]\n"),
            std::vector<std::string>{kCategoriesOfFrame});
}

// 1700000000 and 1700000128 are neighbours in f32.
TEST(ReadLightgbm, WarnsOfThresholdsThatF32DoesNotTellApart) {
  const auto warnings = [](double threshold, double other) {
    TextTree tree;
    tree.feature = {1, 1};
    tree.threshold = {threshold, other};
    tree.decision_type = {0, 0};
    tree.left = {1, ~0};
    tree.right = {~1, ~2};
    tree.leaf = {1, 2, 3};
    const absl::StatusOr<Forest> forest = ReadLightgbm(ToText({tree}, 1, ""));
    EXPECT_TRUE(forest.ok()) << forest.status();
    return forest.ok() ? forest->warnings : std::vector<std::string>();
  };
  EXPECT_TRUE(warnings(1.7e9 + 200, 1.7e9 + 10).empty());
  EXPECT_TRUE(warnings(1.7e9 + 10, 1.7e9 + 10).empty()) << "the same threshold twice";
  const std::vector<std::string> warned = warnings(1.7e9 + 30, 1.7e9 + 10);
  ASSERT_EQ(warned.size(), 1u);
  EXPECT_NE(warned[0].find("all thresholds of feature 'income' apart"), std::string::npos)
      << warned[0];
}

TEST(ReadLightgbm, LeavesOutNamesThatItMadeUp) {
  const std::string text =
      absl::StrReplaceAll(GoodText(), {{"age income colour", "Column_0 Column_1 Column_2"}});
  const absl::StatusOr<Forest> forest = ReadLightgbm(text);
  ASSERT_TRUE(forest.ok()) << forest.status();
  EXPECT_TRUE(forest->feature_names.empty());
}

TEST(ReadLightgbm, NamesWhatIsWrong) {
  struct Case {
    const char *from, *to, *says;
  };
  const Case kCases[] = {
      {"version=v4", "version=v5", "version 'v5'"},
      {"version=v4\n", "", "head: version: is missing"},
      {"max_feature_idx=2", "max_feature_idx=-1", "head: max_feature_idx"},
      {"max_feature_idx=2", "max_feature_idx=9999999", "head: max_feature_idx"},
      {"num_tree_per_iteration=1", "num_tree_per_iteration=2", "num_tree_per_iteration"},
      {"num_tree_per_iteration=1", "num_tree_per_iteration=99999999", "num_tree_per_iteration"},
      {"age income colour", "age income", "head: feature_names: 2 names for 3"},
      {"objective=binary", "objective=bynary", "objective: 'bynary'"},
      {"sigmoid:1", "sigmoid:-1", "sigmoid is '-1'"},
      {"Tree=4", "Tree=5", "Tree=4: the text goes on with 'Tree=5'"},
      {"end of trees", "the end of trees", "Tree=5: the text goes on with"},
      {"num_leaves=3", "num_leaves=0", "Tree=4: num_leaves"},
      {"num_leaves=3", "num_leaves=4", "Tree=4: leaf_value: has 3 numbers instead of 4"},
      {"num_leaves=3\n", "num_leaves=3\nis_linear=1\nis_linear=1\n", ""},  // the last one counts: 0
      {"leaf_value=1 2 3", "leaf_value=1 2 x", "Tree=4: leaf_value[2]: 'x'"},
      {"leaf_value=1 2 3", "leaf_value=1 2 nan", "Tree=4: leaf_value[2]: 'nan'"},
      {"leaf_value=1 2 3", "leaf_value=1 2 1e200", "Tree=4: leaf_value: 1e+200 is too large"},
      {"leaf_value=1 2 3\n", "", "Tree=4: leaf_value: is missing"},
      {"split_feature=0 2", "split_feature=0 3", "Tree=4: split_feature[1]: '3'"},
      {"threshold=2 0", "threshold=2 1", "Tree=4: threshold[1]: 1 is none of 1 sets"},
      {"threshold=2 0", "threshold=2 0.5", "Tree=4: threshold[1]: 0.5 is none of 1 sets"},
      {"threshold=2 0", "threshold=nan 0", "Tree=4: threshold[0]: 'nan'"},
      {"decision_type=8 1", "decision_type=12 1", "Tree=4: decision_type[0]: '12'"},
      {"decision_type=8 1", "decision_type=8", "Tree=4: decision_type: has 1 numbers"},
      {"left_child=1 -1", "left_child=0 -1", "Tree=4: left_child: node 0 is reached a second"},
      {"left_child=1 -1", "left_child=1 -4", "Tree=4: left_child[1]: '-4'"},
      {"left_child=1 -1", "left_child=1 -3", "Tree=4: left_child: node 4 is reached a second"},
      {"cat_boundaries=0 1", "cat_boundaries=0 2", "Tree=4: cat_threshold: has 1 numbers"},
      {"cat_boundaries=0 1", "cat_boundaries=1 0", "Tree=4: cat_boundaries: the numbers"},
      {"cat_threshold=5", "cat_threshold=4294967296", "Tree=4: cat_threshold[0]"},
  };
  ASSERT_TRUE(ReadLightgbm(GoodText()).ok()) << ReadLightgbm(GoodText()).status();
  for (const Case& c : kCases) {
    std::string text = GoodText();
    const size_t at = text.rfind(c.from);
    ASSERT_NE(at, std::string::npos) << c.from;
    text.replace(at, std::string_view(c.from).size(), c.to);
    const absl::Status status = ReadLightgbm(text).status();
    if (*c.says == '\0') {
      EXPECT_TRUE(status.ok()) << status;
      continue;
    }
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << c.to;
    EXPECT_NE(status.message().find(c.says), std::string::npos) << status << "\n" << c.says;
  }
}

TEST(ReadLightgbm, RefusesLinearTrees) {
  std::string text = GoodText();
  text.replace(text.rfind("is_linear=0"), 11, "is_linear=1");
  const absl::Status status = ReadLightgbm(text).status();
  EXPECT_NE(status.message().find("Tree=4: is_linear"), std::string::npos) << status;
  EXPECT_NE(status.message().find("linear_tree=false"), std::string::npos) << status;
}

TEST(ReadLightgbm, NoticesThatTheTextIsCut) {
  const std::string text = GoodText();
  const size_t end = text.find("end of trees\n") + 13;
  for (size_t bytes = 0; bytes < end; bytes += 3)
    EXPECT_FALSE(ReadLightgbm(text.substr(0, bytes)).ok()) << bytes;
  EXPECT_TRUE(ReadLightgbm(text.substr(0, end)).ok());
}

TEST(ReadLightgbm, SurvivesDamage) { ExpectSafeReadingOfDamage(GoodText()); }

}  // namespace
}  // namespace heddle::classical
