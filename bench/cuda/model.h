// A whole model on a GPU, compared with the same model on this CPU.
#pragma once

#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "base/vocabulary/target.h"
#include "compiler/driver/compile.h"

namespace heddle::bench {

struct ModelTimes {
  double default_us = 0, tuned_us = 0;  // medians of runs, copies included
  // Error of the first output against the CPU's (measure/compare.h), the larger of both
  // modules', and its limit.
  double relative_error = 0, tolerance = 0;
};

// Runs a model of the zoo with default schedules and with the best known ones on the GPU
// ("cuda:0"), on random inputs in [-1, 1).
absl::StatusOr<ModelTimes> TimeModel(const std::string& name, const Target& target,
                                     const std::string& device,
                                     const std::map<std::string, BestRecord>& best);

}  // namespace heddle::bench
