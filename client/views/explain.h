// The contents of `heddle explain`, computed from the trials of a task.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "proto/common.pb.h"

namespace heddle::client {

// The best median after each trial, in the order of `trials`; 0 before the first valid one.
std::vector<double> BestSoFar(absl::Span<const v1::Record> trials);

// The trials that one model chose. Only their predictions are comparable with each other.
struct BatchAccuracy {
  std::string job;
  int samples = 0;  // measurements of the task that the model had learned
  int trials = 0;
  // Of the pairs whose times differ by more than 3 %, the share that was predicted in the right
  // order. A failed trial counts as slower than any other. nullopt if there is no such pair.
  std::optional<double> pairs;
  // The predicted rank of the batch's fastest trial; 1 if it was predicted to be the fastest.
  int rank_of_best = 0;
};
// In the order of their first trials. Lost trials and those without a prediction are left out.
std::vector<BatchAccuracy> RankAccuracy(absl::Span<const v1::Record> trials);

// Draws a curve in `rows` lines of `columns` characters above an axis of trial numbers. Each column
// shows the last of its values. Values of 0 are not drawn.
std::string DrawCurve(absl::Span<const double> values, const std::string& unit, int columns,
                      int rows, bool plain);

// Two texts side by side. Lines of a longest common subsequence share a row. Lines of only one text
// are marked < or >, replaced lines |. `plain` separates the columns by tabs.
std::string SideBySide(const std::string& left_title, const std::string& left,
                       const std::string& right_title, const std::string& right, int width,
                       bool plain);

}  // namespace heddle::client
