// Forests end to end in each form, for many records and for one: import, passes, fusion, default schedule, machine code,
// module, executor; against the interpreter.
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "compiler/driver/compile.h"
#include "tests/driver/run_model.h"

namespace heddle {
namespace {

using Rng = std::mt19937_64;

constexpr int kFeatures = 5;

struct Tree {
  std::vector<int> feature{}, decision_type{}, left{}, right{};
  std::vector<std::string> threshold{}, leaf{};
};

// Nodes in preorder; leaves as ~number.
int Grow(Rng& rng, int depth, Tree& tree) {
  if (depth == 0 || rng() % 6 == 0) {
    tree.leaf.push_back(absl::StrCat(static_cast<double>(rng() % 64) / 64));
    return ~static_cast<int>(tree.leaf.size() - 1);
  }
  const size_t at = tree.feature.size();
  tree.feature.push_back(static_cast<int>(rng() % kFeatures));
  tree.decision_type.push_back(rng() % 2 ? 8 : 10);  // NaN is missing, and goes right or left
  tree.threshold.push_back(absl::StrCat(static_cast<double>(rng() % 40) / 20 - 1));
  tree.left.push_back(0);
  tree.right.push_back(0);
  const int left = Grow(rng, depth - 1, tree);
  tree.right[at] = Grow(rng, depth - 1, tree);
  tree.left[at] = left;
  return static_cast<int>(at);
}

// A regressor, as LightGBM writes it.
std::string Model(Rng& rng, int trees, int depth) {
  std::string text = absl::StrCat(
      "tree\nversion=v4\nnum_class=1\nnum_tree_per_iteration=1\nlabel_index=0\nmax_feature_idx=",
      kFeatures - 1, "\nobjective=regression\nfeature_names=a b c d e\n",
      "feature_infos=none none none none none\ntree_sizes=1\n\n");
  for (int t = 0; t < trees; ++t) {
    Tree tree;
    while (tree.feature.empty()) {
      tree = {};
      Grow(rng, depth, tree);
    }
    absl::StrAppend(&text, "Tree=", t, "\nnum_leaves=", tree.leaf.size(),
                    "\nnum_cat=0\nsplit_feature=", absl::StrJoin(tree.feature, " "),
                    "\nsplit_gain=", absl::StrJoin(tree.feature, " "),
                    "\nthreshold=", absl::StrJoin(tree.threshold, " "),
                    "\ndecision_type=", absl::StrJoin(tree.decision_type, " "),
                    "\nleft_child=", absl::StrJoin(tree.left, " "),
                    "\nright_child=", absl::StrJoin(tree.right, " "),
                    "\nleaf_value=", absl::StrJoin(tree.leaf, " "),
                    "\nis_linear=0\nshrinkage=1\n\n\n");
  }
  return text + "end of trees\n\nfeature_importances:\na=3\n\nparameters:\n[boosting: gbdt]\n";
}

TEST(ForestModel, EveryFormComputesWhatTheInterpreterDoes) {
  Rng rng(1);
  for (const int depth : {3, 8}) {
    const std::string text = Model(rng, 70, depth);
    for (const int64_t rows : {300, 1}) {
      for (const graph::ForestForm form : graph::kForestForms) {
        if (form == graph::ForestForm::kSelect && depth == 8) continue;  // has seven levels at most
        const std::string what = absl::StrCat("depth ", depth, ", ", rows, " rows, ",
                                              std::string(graph::ForestFormName(form)));
        ModelOptions options;
        options.import.shapes["rows"] = {rows};
        CompileOptions compile;
        compile.plan.forests["forest"] = form;
        const auto bytes = CompileModel(text, options, {}, {}, compile);
        ASSERT_TRUE(bytes.ok()) << what << ": " << bytes.status();
        const auto module = runtime::ParseModule(*bytes);
        ASSERT_TRUE(module.ok()) << module.status();
        std::vector<std::string> inputs = RandomInputs(module->manifest, 11);
        const float missing = NAN;
        for (size_t i = 0; i < inputs[0].size(); i += 4 * 7)
          std::memcpy(inputs[0].data() + i, &missing, 4);
        const auto outputs = RunModule(*module, inputs, /*runs=*/2);
        ASSERT_TRUE(outputs.ok()) << what << ": " << outputs.status();
        const auto expected = InterpretModel(text, options, inputs);
        ASSERT_TRUE(expected.ok()) << expected.status();
        EXPECT_LE(RelativeError((*outputs)[0], (*expected)[0]), 1e-5) << what;
      }
    }
  }
}

}  // namespace
}  // namespace heddle
