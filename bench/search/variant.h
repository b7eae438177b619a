// Search methods with changed parameters, as text: "annealing",
// "annealing:diversity=0:without=loop".
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "cost_model/search/methods.h"

namespace heddle::bench {

// InvalidArgument lists the methods (those with a model) or the fields that may be changed.
absl::StatusOr<cost_model::Method> ParseVariant(const std::string& text);

// Trials of a run of this method. Methods without a model run with twice as many.
int TrialsOf(const std::string& method, int trials);

}  // namespace heddle::bench
