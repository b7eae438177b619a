#include "cost_model/search/drafts.h"

#include <algorithm>
#include <cstdint>
#include <random>
#include <utility>

namespace heddle::cost_model {

using schedule::Point;
using schedule::Rng;

Point Draft(const Method& method, const schedule::Space& space, double beside, Rng& rng) {
  std::uniform_real_distribution<double> uniform(0, 1);
  if (beside == 0 || uniform(rng) >= beside) return space.Random(rng);
  Point point = space.Preferred();
  std::uniform_int_distribution<int> any(1, method.beside_steps);
  for (int steps = any(rng); steps > 0; --steps) point = space.Mutate(point, rng);
  return point;
}

std::vector<Point> MakeDrafts(const Method& method, CandidateSpace& candidates, int n, int each,
                              double beside, Rng& rng) {
  const int64_t draws = std::min(int64_t{each} * n, int64_t{std::max(method.evaluations, n)});
  std::vector<Point> drafts;
  for (int64_t i = 0; i < draws; ++i) {
    Point point = Draft(method, candidates.space(), beside, rng);
    const Evaluated* evaluated = candidates.Evaluate(point);
    if (evaluated == nullptr || candidates.Visited(evaluated->hash)) continue;
    drafts.push_back(std::move(point));
  }
  return drafts;
}

}  // namespace heddle::cost_model
