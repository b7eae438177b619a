// Walks through a space towards high scores, within the bounds of the method.
#pragma once

#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "cost_model/search/candidate_space.h"
#include "cost_model/search/methods.h"
#include "cost_model/search/shortlist.h"

namespace heddle::cost_model {

struct WalkContext {
  const Method& method;
  CandidateSpace& candidates;
  // Scores of feasible points, higher is better.
  std::function<absl::StatusOr<std::vector<float>>(const std::vector<schedule::Point>&)> score;
  std::vector<schedule::Point> best;  // measured points, best first
  // Draws a start that does not come from a measurement (drafts.h).
  std::function<schedule::Point(schedule::Rng&)> draft;
  std::vector<schedule::Point>& chains;  // the ends of the last walk; updated
  schedule::Rng& rng;
};

// The best unvisited candidates of the walk, at most `capacity`.
absl::StatusOr<Shortlist> Anneal(const WalkContext& context, size_t capacity);
absl::StatusOr<Shortlist> Evolve(const WalkContext& context, size_t capacity);

}  // namespace heddle::cost_model
