// Default implementations of a space's operations on points.
#include <vector>

#include "compiler/schedule/space.h"

namespace heddle::schedule {

Point Space::Random(Rng& rng) const {
  Point point;
  for (int k = 0; k < NumDecisions(); ++k) {
    point.push_back(std::uniform_int_distribution<int32_t>(0, Choices(k) - 1)(rng));
  }
  return point;
}

Point Space::Mutate(const Point& point, Rng& rng) const {
  std::vector<int> open;
  for (int k = 0; k < NumDecisions(); ++k) {
    if (Choices(k) > 1) open.push_back(k);
  }
  Point mutant = point;
  if (open.empty()) return mutant;
  int k = open[std::uniform_int_distribution<size_t>(0, open.size() - 1)(rng)];
  // Any choice but the present one.
  int32_t drawn = std::uniform_int_distribution<int32_t>(0, Choices(k) - 2)(rng);
  mutant[k] = drawn + (drawn >= mutant[k]);
  return mutant;
}

Point Space::Cross(const Point& a, const Point& b, Rng& rng) const {
  Point child = a;
  for (size_t k = 0; k < child.size(); ++k) {
    if (std::uniform_int_distribution<int>(0, 1)(rng) == 1) child[k] = b[k];
  }
  return child;
}

bool Space::Next(Point& point) const {
  for (int k = NumDecisions() - 1; k >= 0; --k) {
    if (++point[k] < Choices(k)) return true;
    point[k] = 0;
  }
  return false;
}

}  // namespace heddle::schedule
