// Drafts: points that are not derived from measured ones. First batches are chosen from them, and
// chains begin at them.
#pragma once

#include <vector>

#include "cost_model/search/candidate_space.h"
#include "cost_model/search/methods.h"

namespace heddle::cost_model {

// A point that is, with probability `beside`, one to beside_steps mutations away from the default
// schedule, and otherwise random.
schedule::Point Draft(const Method& method, const schedule::Space& space, double beside,
                      schedule::Rng& rng);

// Draws n * each drafts, but at most max(method.evaluations, n), and returns those that are
// feasible and unvisited. A point may occur more than once.
std::vector<schedule::Point> MakeDrafts(const Method& method, CandidateSpace& candidates, int n,
                                        int each, double beside, schedule::Rng& rng);

}  // namespace heddle::cost_model
