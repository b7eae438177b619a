// The contents of `heddle explain`, computed from the trials of a task.
#pragma once

#include <string>
#include <vector>

#include "absl/types/span.h"
#include "proto/common.pb.h"
#include "views/accuracy.h"

namespace heddle::client {

// The best median after each trial, in the order of `trials`; 0 before the first valid one.
std::vector<double> BestSoFar(absl::Span<const v1::Record> trials);

using views::BatchAccuracy;
// The trials that have a prediction, in their order, without the lost ones.
std::vector<views::PredictedTrial> PredictedOf(absl::Span<const v1::Record> trials);
// views::RankAccuracy of these.
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
