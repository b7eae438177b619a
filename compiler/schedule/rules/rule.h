// What a rule is: the decisions that it leaves open, and the steps that follow from them. Internal
// to this folder.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "compiler/schedule/rules/recorder.h"
#include "compiler/schedule/space.h"

namespace heddle::schedule {

// One decision: the values to choose from and the one to take without measurement.
struct Knob {
  std::string what;
  std::vector<int64_t> values;
  int32_t preferred = 0;
};

// The decisions of a space, in order.
class Knobs {
 public:
  // Returns the decision's index. If `preferred` is not among the values, the first is preferred.
  int Add(std::string what, std::vector<int64_t> values, int64_t preferred);
  const std::vector<Knob>& all() const { return knobs_; }
  int64_t Value(const Point& point, int knob) const { return knobs_[knob].values[point[knob]]; }
  Point Preferred() const;

 private:
  std::vector<Knob> knobs_;
};

// A rule declares its decisions when it is constructed. Apply turns decided values into steps.
// FailedPrecondition or ResourceExhausted from either function refuses the point. Any other error
// is a bug of the rule (space_test fails).
class Rule {
 public:
  virtual ~Rule() = default;
  virtual absl::Status Apply(const Knobs& knobs, const Point& point, Recorder& out) const = 0;
  // The error of Apply for limits that the decisions alone exceed, found without making a step.
  // Random points are drawn until this is OK.
  virtual absl::Status Check(const Knobs& /*knobs*/, const Point& /*point*/) const {
    return absl::OkStatus();
  }
};

}  // namespace heddle::schedule
