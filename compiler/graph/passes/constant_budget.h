#pragma once

#include <cstdint>

namespace heddle::graph {

// Limits the cost of making constants for a whole model, because a file of a few bytes can ask for
// many large ones. Each pass has its own budget.
class ConstantBudget {
 public:
  // The size limit of a model file, and about twenty seconds of evaluation.
  static constexpr int64_t kBytes = int64_t{1} << 31;
  static constexpr double kSteps = 5e8;

  explicit ConstantBudget(int64_t bytes = kBytes, double steps = kSteps)
      : bytes_(bytes), steps_(steps) {}

  // Takes the cost of a constant of `bytes` that `steps` expression nodes compute. If less than
  // that is left, takes nothing and returns false.
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
