// Turns a naive program and a choice of schedule into the programs that a back end compiles.
// Internal to this folder.
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

// A scheduled and lowered workload. Its buffers have the same names as in the naive program.
struct LoweredWorkload {
  ir::Program kernel;
  std::optional<ir::Program> prepack;  // named `symbol`.prepack; see pass/hoist_constants.h
  runtime::Numerics numerics;          // what the schedule promises
};

// Schedules and lowers the naive program, and names the result `symbol`. Errors as BuildCandidate.
absl::StatusOr<LoweredWorkload> ScheduleAndLower(const ir::Program& naive, ScheduleChoice choice,
                                                 std::string_view trace,
                                                 const machine::TargetInfo& target,
                                                 const std::string& symbol);

// "naive", "default" or "tuned", as modules name it.
std::string_view Name(ScheduleChoice choice);

}  // namespace heddle::internal
