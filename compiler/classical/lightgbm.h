// LightGBM's models as text, as its save_model writes them: versions 2.2 to 4.x (v2 to v4 in the file).
#pragma once

#include <string_view>

#include "absl/status/statusor.h"
#include "compiler/classical/forest.h"

namespace heddle::classical {

// The forest of a model of the boosting types gbdt, dart and rf. Leaf values are rounded to f32.
//   * x <= threshold (f64) goes left. The missing type of a node decides about NaN: none takes it for 0,
//     nan sends it where the node says, and zero sends it there together with everything from -1e-35 to
//     1e-35.
//   * A category of the listed ones goes left, any other value right, also NaN and negative ones. Values
//     of categorical features are the integers that LightGBM saw; for pandas categories, their codes.
//   * Random forests (average_output) are averaged over their iterations before the objective's
//     transform.
// The objective gives transform, scale (its sigmoid parameter) and the classes 0, 1, ... Without an
// objective, as custom ones leave it, the outputs are the raw scores. Names of features that LightGBM
// made up, Column_0 and so on, are left out. The text holds the trees that save_model was asked for: by
// default those up to the best iteration.
// InvalidArgument names the tree, the node and the field: the text is damaged or ends early, exceeds a
// limit of a forest, or has what a forest cannot express (linear trees, an unknown objective).
absl::StatusOr<Forest> ReadLightgbm(std::string_view text);

}  // namespace heddle::classical
