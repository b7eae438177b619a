// XGBoost's models, as its save_model writes them: JSON and UBJSON of versions 1.0 to 3.x.
#pragma once

#include <string_view>

#include "absl/status/statusor.h"
#include "compiler/classical/forest.h"

namespace heddle::classical {

// The forest of a model of the boosters gbtree and dart, with one output or a vector of them in each
// leaf.
//   * x < threshold goes left, NaN where default_left says. A category of the listed ones goes right,
//     any other value left, also one that is negative or too large; NaN goes where default_left says.
//   * base_score is turned into a margin as the objective does it, and leaves of dart are multiplied by
//     weight_drop.
//   * If training stopped early, only the trees up to the attribute best_iteration count. XGBoost's
//     scikit-learn classes predict like that; Booster.predict takes all trees unless it is given a
//     range. Whoever wants all trees removes the attribute.
//   * Values of categorical features are the codes from 0 on. Names of categories (versions from 3.1 on)
//     are not read.
// The objective gives the transform and the classes 0, 1, ..; multi:softmax has the scores of
// multi:softprob. InvalidArgument names the tree, the node and the field: the file is damaged, exceeds a
// limit of a forest, or has what a forest cannot express (the booster gblinear, several quantiles that
// XGBoost sorts, several expectiles, an unknown objective, a threshold of -infinity).
absl::StatusOr<Forest> ReadXgboost(std::string_view bytes);

}  // namespace heddle::classical
