// A forest as a whole model, for any number of rows.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/classical/forest.h"
#include "compiler/graph/core/graph.h"

namespace heddle::classical {

// Numbers of rows for any use: one row at a time, a vector's worth, what stays in a cache, and enough for all threads.
inline constexpr int64_t kUsualBlocks[] = {1, 16, 128, 2048};

// The numbers of rows that a model is to be made for, each once, largest first: those that are given for `dimension`, or kUsualBlocks
// if there are none. InvalidArgument: one is below 1, or there are more than kMostRowBlocks.
absl::StatusOr<std::vector<int64_t>> BlocksOfRows(const std::string& dimension,
                                                  const std::vector<int64_t>& given);

// The input is "x", f32 [rows, features]; NaN is a missing value. The outputs are
//   scores  what the source's own library predicts: f32 [rows], or [rows, outputs] if there are several
//   label   of classifiers: i64 [rows], the class with the largest score (of two classes: the second one
//           if its score is above one half, whether that is a probability or a margin)
// Rows are independent. The columns of x have the names of the features, if all of them are short enough; those of scores are the
// classes, or the second one for the one score of a binary classifier. `warnings`, which is optional, receives a line where names
// are left out (graph::DropNamesOverLimits), and those of the forest.
// `shapes`: the shape of "x"; or "rows", the number of rows; or several of them, for each of which the graph then holds the model
// (graph::AddRowBlock); or nothing, which means kUsualBlocks. InvalidArgument: the shape does not fit, or as BlocksOfRows.
absl::StatusOr<graph::Graph> ImportForest(const Forest& forest,
                                          const std::map<std::string, std::vector<int64_t>>& shapes,
                                          std::vector<std::string>* warnings = nullptr);

}  // namespace heddle::classical
