// Search methods with changes, by text: "annealing", "annealing:diversity=0:without=loop".
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "cost_model/search/methods.h"

namespace heddle::bench {

// InvalidArgument names the methods (those with a model) or the fields that may be changed.
absl::StatusOr<cost_model::Method> ParseVariant(const std::string& text);

// Of a run of that name. Those without a model also show what they find with twice the trials.
int TrialsOf(const std::string& method, int trials);

}  // namespace heddle::bench
