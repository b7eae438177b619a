// The cases of the standard whose expected values are random numbers.
#pragma once

#include <set>
#include <string>

namespace heddle::onnx_cases {

// No two generators draw the same numbers, so types and shapes of the results of these cases are
// compared, and values are not. They count on their own.
inline bool IsRandomCase(const std::string& name) {
  static const auto* names = new std::set<std::string>{
      "test_bernoulli",
      "test_bernoulli_double",
      "test_bernoulli_double_expanded",
      "test_bernoulli_expanded",
      "test_bernoulli_seed",
      "test_bernoulli_seed_expanded",
      "test_training_dropout",
      "test_training_dropout_default",
      "test_training_dropout_default_mask",
      "test_training_dropout_mask",
  };
  return names->count(name) != 0;
}

}  // namespace heddle::onnx_cases
