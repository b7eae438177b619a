#pragma once

#include <cstdint>

namespace heddle::graph {

// Limits what making constants may cost for a whole model: a file of a few bytes can ask for many
// large ones. Each pass has a budget of its own.
class ConstantBudget {
 public:
  // The limit of a model file, and about twenty seconds of evaluation.
  static constexpr int64_t kBytes = int64_t{1} << 31;
  static constexpr double kSteps = 5e8;

  explicit ConstantBudget(int64_t bytes = kBytes, double steps = kSteps)
      : bytes_(bytes), steps_(steps) {}

  // Takes the cost of a constant of `bytes` that `steps` expression nodes compute; false, and
  // nothing taken, if that is more than is left.
  bool Take(int64_t bytes, double steps) {
    if (bytes > bytes_ || !(steps <= steps_)) return false;
    bytes_ -= bytes;
    steps_ -= steps;
    return true;
  }

 private:
  int64_t bytes_;
  double steps_;
};

}  // namespace heddle::graph
