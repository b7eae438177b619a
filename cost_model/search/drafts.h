// Drafts: points that do not start from measured ones. First batches are chosen from them, and
// chains begin at them.
#pragma once

#include <vector>

#include "cost_model/search/candidate_space.h"
#include "cost_model/search/methods.h"

namespace heddle::cost_model {

// With probability `beside` one to beside_steps mutations of the default schedule, otherwise a
// random point.
schedule::Point Draft(const Method& method, const schedule::Space& space, double beside,
                      schedule::Rng& rng);

// The feasible, unvisited points among `each` drafts for each of n candidates; some may repeat. The
// number of drafts is limited to the method's evaluations, or to n if that is more.
std::vector<schedule::Point> MakeDrafts(const Method& method, CandidateSpace& candidates, int n,
                                        int each, double beside, schedule::Rng& rng);

}  // namespace heddle::cost_model
