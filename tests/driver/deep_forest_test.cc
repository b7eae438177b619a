// Forests of many levels import, are scheduled and compiled within bounds, and predict what the trees say.
#include <gtest/gtest.h>

#include <random>
#include <span>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "compiler/classical/forest.h"
#include "compiler/classical/read.h"
#include "compiler/driver/compile.h"
#include "tests/driver/run_model.h"

namespace heddle {
namespace {

constexpr int kFeatures = 4;

// LightGBM's text of trees that are chains: each inner node has a leaf on one side. A row whose values lie in (-0.6, 0.6)
// comes to the last leaf, another one leaves the chain somewhere.
std::string Chains(int trees, int levels) {
  std::mt19937_64 rng(1);
  std::uniform_real_distribution<double> bound(0.6, 1);
  std::string text = absl::StrCat(
      "tree\nversion=v4\nnum_class=1\nnum_tree_per_iteration=1\nlabel_index=0\nmax_feature_idx=",
      kFeatures - 1, "\nfeature_names=a b c d\nfeature_infos=none none none none\n\n");
  for (int t = 0; t < trees; ++t) {
    std::vector<int> features, left, right;
    std::vector<double> thresholds, leaves;
    for (int i = 0; i < levels; ++i) {
      const int leaf = ~i, next = i + 1 < levels ? i + 1 : ~levels;
      const bool goes_left = rng() % 2 == 0;
      features.push_back(static_cast<int>(rng() % kFeatures));
      thresholds.push_back(goes_left ? bound(rng) : -bound(rng));
      left.push_back(goes_left ? next : leaf);
      right.push_back(goes_left ? leaf : next);
    }
    for (int i = 0; i <= levels; ++i) leaves.push_back((i % 64) / 64.0 - t);
    absl::StrAppend(&text, "Tree=", t, "\nnum_leaves=", levels + 1,
                    "\nnum_cat=0\nsplit_feature=", absl::StrJoin(features, " "),
                    "\nthreshold=", absl::StrJoin(thresholds, " "),
                    "\ndecision_type=", absl::StrJoin(std::vector<int>(features.size(), 0), " "),
                    "\nleft_child=", absl::StrJoin(left, " "),
                    "\nright_child=", absl::StrJoin(right, " "),
                    "\nleaf_value=", absl::StrJoin(leaves, " "), "\n\n\n");
  }
  return absl::StrCat(text, "end of trees\n");
}

TEST(DeepForest, PredictsWithinBounds) {
  struct Case {
    int trees, levels;
    int64_t rows;
  };
  for (const Case& c : {Case{20, 40, 37}, Case{16, 60, 1}, Case{3, 512, 37}}) {
    SCOPED_TRACE(absl::StrCat(c.trees, " trees of ", c.levels, " levels, ", c.rows, " rows"));
    const std::string text = Chains(c.trees, c.levels);
    const auto forest = classical::ReadForest(text);
    ASSERT_TRUE(forest.ok()) << forest.status();
    ASSERT_EQ(classical::Depth(forest->trees.back()), c.levels);
    ModelOptions options;
    options.import.shapes = {{"rows", {c.rows}}};
    const auto bytes = CompileModel(text, options, {}, {}, {.choice = ScheduleChoice::kDefault});
    ASSERT_TRUE(bytes.ok()) << bytes.status();
    const auto module = runtime::ParseModule(*bytes);
    ASSERT_TRUE(module.ok()) << module.status();
    EXPECT_LT(module->code.size(), (8 << 10) + 512 * static_cast<size_t>(c.levels));
    const std::vector<std::string> inputs = RandomInputs(module->manifest, 5);
    const auto outputs = RunModule(*module, inputs);
    ASSERT_TRUE(outputs.ok()) << outputs.status();
    const std::vector<float> rows = Floats(inputs[0]), scores = Floats((*outputs)[0]);
    ASSERT_EQ(scores.size(), static_cast<size_t>(c.rows));
    for (int64_t r = 0; r < c.rows; ++r) {
      const std::vector<double> expected = classical::Margins(
          *forest, std::span(rows).subspan(static_cast<size_t>(r) * kFeatures, kFeatures));
      EXPECT_NEAR(scores[static_cast<size_t>(r)], expected[0], 1e-4) << "row " << r;
    }
  }
}

}  // namespace
}  // namespace heddle
