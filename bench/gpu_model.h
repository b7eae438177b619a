// A whole model on a GPU, beside what the same model gives on this CPU.
#pragma once

#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "compiler/compile.h"
#include "compiler/ir/target.h"

namespace heddle::bench {

struct ModelTimes {
  double default_us = 0, tuned_us = 0;  // medians of runs with their copies
  // Largest difference to the CPU's output, relative to its largest magnitude; of both.
  double relative_error = 0;
};

// A model of the zoo, with default schedules and with the best known ones, of an input of ones.
absl::StatusOr<ModelTimes> TimeModel(const std::string& name, const ir::Target& target,
                                     const std::map<std::string, BestRecord>& best);

}  // namespace heddle::bench
