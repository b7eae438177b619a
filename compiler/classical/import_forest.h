// A forest as a whole model.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/classical/forest.h"
#include "compiler/graph/core/graph.h"

namespace heddle::classical {

// The input is "x", f32 [rows, features]; NaN is a missing value. The outputs are
//   scores  what the source's own library predicts: f32 [rows], or [rows, outputs] if there are several
//   label   of classifiers: i64 [rows], the class with the largest score (of two classes: whether the score of the second
//           is at least one half; without a transform: is positive)
// `shapes`: the shape of "x", or the extent of "rows". InvalidArgument: it has neither, or the shape does not fit.
absl::StatusOr<graph::Graph> ImportForest(const Forest& forest,
                                          const std::map<std::string, std::vector<int64_t>>& shapes);

}  // namespace heddle::classical
