// What `heddle explain` says of a task's search, computed from its trials.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "proto/common.pb.h"

namespace heddle::client {

// After each trial the best median so far; 0 before the first valid one. In the order of `trials`.
std::vector<double> BestSoFar(absl::Span<const v1::Record> trials);

// The trials that one model chose: its predictions compare with each other.
struct BatchAccuracy {
  std::string job;
  int samples = 0;  // of the task, that the model had learned from
  int trials = 0;
  // Share of the pairs whose times differ by more than 3 % that were predicted in the right order;
  // a failed trial is slower than any other. Nullopt if there is no such pair.
  std::optional<double> pairs;
  // Of the batch's fastest trial: how many of the batch were predicted to be faster, plus one.
  int rank_of_best = 0;
};
// In the order of their first trials. Trials without a prediction, and lost ones, are left out.
std::vector<BatchAccuracy> RankAccuracy(absl::Span<const v1::Record> trials);

// A curve of values above a line of the trials they belong to, drawn in `rows` lines of `columns`
// characters; each column shows the last of its values. Values of 0 are not drawn.
std::string DrawCurve(absl::Span<const double> values, const std::string& unit, int columns,
                      int rows, bool plain);

// Lines of two texts beside each other, those of a longest common subsequence in the same row; what
// only one of them has is marked < or >, what stands for something else |. Plain: columns are
// separated by tabs.
std::string SideBySide(const std::string& left_title, const std::string& left,
                       const std::string& right_title, const std::string& right, int width,
                       bool plain);

}  // namespace heddle::client
