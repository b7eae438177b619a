// Models of decision trees as files, for tests of whole models.
#pragma once

#include <cstdint>
#include <random>
#include <string>

#include "absl/strings/str_cat.h"

namespace heddle {

// LightGBM's text format: `trees` complete trees of `depth` levels over `features` features, with thresholds and leaves in
// [-1, 1). `classes`: 1 is a regression, 2 a binary classifier, more have that many trees for each of `trees`.
inline std::string ForestText(int trees, int depth, int features, int classes = 1) {
  std::mt19937_64 rng(1);
  const auto draw = [&rng] { return absl::StrCat(static_cast<double>(rng() % 2000003) / 1e6 - 1); };
  const int each = classes > 2 ? classes : 1, inner = (1 << depth) - 1;
  std::string text =
      absl::StrCat("tree\nversion=v4\nnum_class=", each, "\nnum_tree_per_iteration=", each,
                   "\nlabel_index=0\nmax_feature_idx=", features - 1, "\nobjective=");
  absl::StrAppend(&text,
                  classes == 1   ? "regression"
                  : classes == 2 ? "binary sigmoid:1"
                                 : "multiclass num_class:",
                  classes > 2 ? absl::StrCat(classes) : "", "\nfeature_names=");
  for (int f = 0; f < features; ++f) absl::StrAppend(&text, f == 0 ? "" : " ", "Column_", f);
  text += "\nfeature_infos=none\ntree_sizes=1\n\n";
  for (int t = 0; t < trees * each; ++t) {
    std::string feature, gain, threshold, decision, left, right, leaf;
    for (int n = 0; n < inner; ++n) {
      const char* space = n == 0 ? "" : " ";
      const auto child = [&](int number) {
        return number < inner ? number : ~(number - inner);  // a leaf
      };
      absl::StrAppend(&feature, space, rng() % static_cast<uint64_t>(features));
      absl::StrAppend(&gain, space, 1);
      absl::StrAppend(&threshold, space, draw());
      absl::StrAppend(&decision, space, 2);
      absl::StrAppend(&left, space, child(2 * n + 1));
      absl::StrAppend(&right, space, child(2 * n + 2));
    }
    for (int n = 0; n <= inner; ++n) absl::StrAppend(&leaf, n == 0 ? "" : " ", draw());
    absl::StrAppend(&text, "Tree=", t, "\nnum_leaves=", inner + 1,
                    "\nnum_cat=0\nsplit_feature=", feature, "\nsplit_gain=", gain,
                    "\nthreshold=", threshold, "\ndecision_type=", decision, "\nleft_child=", left,
                    "\nright_child=", right, "\nleaf_value=", leaf,
                    "\nis_linear=0\nshrinkage=0.1\n\n\n");
  }
  return text + "end of trees\n\nfeature_importances:\n\nparameters:\n[boosting: gbdt]\n";
}

}  // namespace heddle
