// A whole model on a GPU, beside what the same model gives on this CPU.
#pragma once

#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "base/target.h"
#include "compiler/driver/compile.h"

namespace heddle::bench {

struct ModelTimes {
  double default_us = 0, tuned_us = 0;  // medians of runs with their copies
  // Of the first output, against the CPU's (measure/compare.h); of both, and how large it
  // may be.
  double relative_error = 0, tolerance = 0;
};

// A model of the zoo, with default schedules and with the best known ones, on that GPU ("cuda:0"),
// of random inputs in [-1, 1).
absl::StatusOr<ModelTimes> TimeModel(const std::string& name, const Target& target,
                                     const std::string& device,
                                     const std::map<std::string, BestRecord>& best);

}  // namespace heddle::bench
