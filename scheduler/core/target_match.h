// The little a scheduler must understand of a target's text: how many threads it asks for, and what
// is left without them.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace heddle::scheduler {

struct TargetNeeds {
  std::string device_target;  // without what only says how to use it, as Slot.target has it
  int threads = 1;            // cores a device slot must have; 0: any number (GPU targets)
};

// InvalidArgument, naming the option, for a text that is no canonical target ("native" is not: the
// client resolves it).
absl::StatusOr<TargetNeeds> ParseTargetNeeds(std::string_view target);

}  // namespace heddle::scheduler
