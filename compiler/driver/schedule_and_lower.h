// From a naive program and a choice of schedule to the programs that a back end compiles. Internal
// to this folder.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/driver/compile.h"
#include "compiler/ir/ir.h"
#include "compiler/machine/target_info.h"
#include "compiler/runtime/numerics.h"

namespace heddle::internal {

// A scheduled and lowered workload. Buffers keep the names they have in the naive program.
struct LoweredWorkload {
  ir::Program kernel;
  std::optional<ir::Program> prepack;  // see pass/hoist_constants.h; named `symbol`.prepack
  runtime::Numerics numerics;          // what the schedule promises
};

// The naive program under the chosen schedule, lowered, under the name `symbol`. Errors as
// BuildCandidate.
absl::StatusOr<LoweredWorkload> ScheduleAndLower(const ir::Program& naive, ScheduleChoice choice,
                                                 std::string_view trace,
                                                 const machine::TargetInfo& target,
                                                 const std::string& symbol);

// "naive", "default" or "tuned", as modules name it.
std::string_view Name(ScheduleChoice choice);

}  // namespace heddle::internal
