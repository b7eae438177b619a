#include "compiler/schedule/rules/rule.h"

#include <algorithm>
#include <utility>

namespace heddle::schedule {

int Knobs::Add(std::string what, std::vector<int64_t> values, int64_t preferred) {
  Knob knob{std::move(what), std::move(values), 0};
  auto it = std::find(knob.values.begin(), knob.values.end(), preferred);
  if (it != knob.values.end()) knob.preferred = static_cast<int32_t>(it - knob.values.begin());
  knobs_.push_back(std::move(knob));
  return static_cast<int>(knobs_.size()) - 1;
}

Point Knobs::Preferred() const {
  Point point;
  point.reserve(knobs_.size());
  for (const Knob& knob : knobs_) point.push_back(knob.preferred);
  return point;
}

}  // namespace heddle::schedule
