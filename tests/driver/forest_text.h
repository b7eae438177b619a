// Models of decision trees as files, for tests of whole models.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace heddle {

// A tree by its inner nodes, of which the first one is the root. A child below 0 is the leaf ~child.
struct TextTree {
  std::vector<int> features = {};
  std::vector<int> decisions =
      {};  // LightGBM's decision_type: 2 is default left, 8 is that NaN is missing
  std::vector<int> left = {}, right = {};
  std::vector<double> thresholds = {};
  std::vector<double> leaves = {};
};

// LightGBM's text format. `classes`: 1 is a regression, 2 a binary classifier, and more take the trees in turns.
inline std::string LightGbmText(const std::vector<TextTree>& trees, int features, int classes = 1) {
  const int each = classes > 2 ? classes : 1;
  const std::vector<std::string> infos(static_cast<size_t>(features), "none");
  std::vector<std::string> names;
  for (int f = 0; f < features; ++f) names.push_back(absl::StrCat("Column_", f));
  std::string text =
      absl::StrCat("tree\nversion=v4\nnum_class=", each, "\nnum_tree_per_iteration=", each,
                   "\nlabel_index=0\nmax_feature_idx=", features - 1, "\nobjective=",
                   classes == 1   ? "regression"
                   : classes == 2 ? "binary sigmoid:1"
                                  : absl::StrCat("multiclass num_class:", classes),
                   "\nfeature_names=", absl::StrJoin(names, " "),
                   "\nfeature_infos=", absl::StrJoin(infos, " "), "\ntree_sizes=1\n\n");
  for (size_t t = 0; t < trees.size(); ++t) {
    const TextTree& tree = trees[t];
    absl::StrAppend(&text, "Tree=", t, "\nnum_leaves=", tree.leaves.size(),
                    "\nnum_cat=0\nsplit_feature=", absl::StrJoin(tree.features, " "),
                    "\nthreshold=", absl::StrJoin(tree.thresholds, " "),
                    "\ndecision_type=", absl::StrJoin(tree.decisions, " "),
                    "\nleft_child=", absl::StrJoin(tree.left, " "),
                    "\nright_child=", absl::StrJoin(tree.right, " "),
                    "\nleaf_value=", absl::StrJoin(tree.leaves, " "),
                    "\nis_linear=0\nshrinkage=1\n\n\n");
  }
  return text + "end of trees\n\nfeature_importances:\n\nparameters:\n[boosting: gbdt]\n";
}

// `trees` complete trees of `depth` levels over `features` features, with thresholds and leaves in [-1, 1). More than two classes
// have that many trees for each of `trees`.
inline std::string ForestText(int trees, int depth, int features, int classes = 1) {
  std::mt19937_64 rng(1);
  const auto draw = [&rng] { return static_cast<double>(rng() % 2000003) / 1e6 - 1; };
  const int inner = (1 << depth) - 1;
  const auto child = [&](int number) { return number < inner ? number : ~(number - inner); };
  std::vector<TextTree> made(static_cast<size_t>(trees * (classes > 2 ? classes : 1)));
  for (TextTree& tree : made) {
    for (int n = 0; n < inner; ++n) {
      tree.features.push_back(static_cast<int>(rng() % static_cast<uint64_t>(features)));
      tree.thresholds.push_back(draw());
      tree.decisions.push_back(2);
      tree.left.push_back(child(2 * n + 1));
      tree.right.push_back(child(2 * n + 2));
    }
    for (int n = 0; n <= inner; ++n) tree.leaves.push_back(draw());
  }
  return LightGbmText(made, features, classes);
}

// Adds a node with all that is below it, in preorder, down to `depth` levels. Returns it as a child.
inline int GrowRagged(std::mt19937_64& rng, int depth, int features, TextTree& tree) {
  if (depth == 0 || rng() % 6 == 0) {
    tree.leaves.push_back((static_cast<double>(rng() % 64) - 31.5) / 64);
    return ~static_cast<int>(tree.leaves.size() - 1);
  }
  const size_t at = tree.features.size();
  tree.features.push_back(static_cast<int>(rng() % static_cast<uint64_t>(features)));
  tree.decisions.push_back(rng() % 2 ? 8 : 10);  // NaN goes right or left
  tree.thresholds.push_back(static_cast<double>(rng() % 40) / 20 - 1);
  tree.left.push_back(0);
  tree.right.push_back(0);
  const int left = GrowRagged(rng, depth - 1, features, tree);
  tree.right[at] = GrowRagged(rng, depth - 1, features, tree);
  tree.left[at] = left;
  return static_cast<int>(at);
}

// The same with trees that end anywhere, in which a missing value goes to either side.
inline std::string RaggedForestText(int trees, int depth, int features, int classes = 1) {
  std::mt19937_64 rng(1);
  std::vector<TextTree> made(static_cast<size_t>(trees * (classes > 2 ? classes : 1)));
  for (TextTree& tree : made) {
    while (tree.features.empty()) {
      tree = {};
      GrowRagged(rng, depth, features, tree);
    }
  }
  return LightGbmText(made, features, classes);
}

}  // namespace heddle
