// Points beside nothing measured: what the first batches are chosen from, and where chains begin.
#pragma once

#include <vector>

#include "cost_model/search/candidate_space.h"
#include "cost_model/search/methods.h"

namespace heddle::cost_model {

// With probability `beside` one to beside_steps mutations of the default schedule, else from
// anywhere.
schedule::Point Draft(const Method& method, const schedule::Space& space, double beside,
                      schedule::Rng& rng);

// Those of `each` draws for each of n places that are feasible and not visited, some perhaps twice.
// Draws are as many as the method's evaluations, or places where those are more, at most.
std::vector<schedule::Point> MakeDrafts(const Method& method, CandidateSpace& candidates, int n,
                                        int each, double beside, schedule::Rng& rng);

}  // namespace heddle::cost_model
